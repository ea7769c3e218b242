"""Console sessions: begun with a key, ended with it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.auth.key_ring import KeyRing
from service.auth.keys import ApiKey, NewSecret, RateLimit, SecretHash
from service.auth.sessions import SESSION_SECONDS, Sessions
from service.auth.tenants import TenantScope
from service.errors import KeyRefused, RateLimited
from tests.support.keys import ALL, api_key
from tests.unit.auth.test_key_ring import Clocks, Source

ACME = TenantScope("acme")


class Lab:
    """A key ring with one key, and the sessions of a process."""

    def __init__(self, rate_limit: RateLimit | None = None) -> None:
        self.clock, self.source = Clocks(), Source()
        self.keys = KeyRing(self.clock, self.clock)
        self.sessions = Sessions(self.keys, "secret", self.clock)
        self.key: ApiKey = api_key(ACME) if rate_limit is None else api_key(ACME, ALL, rate_limit)
        self.secret = NewSecret.for_key(self.key.key_id)

    async def put(self, *secrets: SecretHash) -> None:
        self.source.put(replace(self.key, secrets=secrets))
        await self.keys.refresh(self.source)


@pytest.fixture
async def lab() -> Lab:
    made = Lab()
    await made.put(SecretHash(made.secret.sha256))
    return made


def test_a_session_is_its_keys_caller(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    found = lab.sessions.caller(token)
    assert (found.tenant_scope, found.key_id) == (ACME, lab.key.key_id)
    assert lab.secret.value not in token


@pytest.mark.parametrize("key", ["", "daband_1_2", "x" * 90])
def test_a_wrong_key_begins_no_session(lab: Lab, key: str):
    with pytest.raises(KeyRefused):
        lab.sessions.begin(key)


def test_a_session_ends_on_time(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    lab.clock.now += SESSION_SECONDS - 1
    lab.sessions.caller(token)
    lab.clock.now += 1
    with pytest.raises(KeyRefused):
        lab.sessions.caller(token)


async def test_a_session_ends_with_its_key(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    lab.source.put()
    await lab.keys.refresh(lab.source)
    with pytest.raises(KeyRefused):
        lab.sessions.caller(token)


async def test_a_session_ends_with_the_secret_that_began_it(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    new = SecretHash(NewSecret.for_key(lab.key.key_id).sha256)
    overlap = datetime.fromtimestamp(lab.clock.now + 60, UTC)
    await lab.put(new, SecretHash(lab.secret.sha256, overlap))
    lab.sessions.caller(token)
    lab.clock.now += 60
    with pytest.raises(KeyRefused):
        lab.sessions.caller(token)


def test_no_part_of_a_token_can_be_changed(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    key_id, expires_at, nonce, signature = token.split(".")
    other = api_key(ACME).key_id
    for changed in (
        f"{other}.{expires_at}.{nonce}.{signature}",
        f"{key_id}.{int(expires_at) + 1}.{nonce}.{signature}",
        f"{key_id}.{expires_at}.{'0' * len(nonce)}.{signature}",
        f"{key_id}.{expires_at}.{nonce}.{'0' * len(signature)}",
        f"{key_id}.{expires_at}.{nonce}.",
        f"{key_id}.é.{nonce}.{signature}",
        f"{key_id}.{expires_at}.{nonce}.é",
        f"{token}.",
        *("", ".", "..", "...", key_id),
    ):
        with pytest.raises(KeyRefused):
            lab.sessions.caller(changed)
        assert lab.sessions.end_of(changed) is None


def test_two_sessions_of_one_moment_differ(lab: Lab):
    assert lab.sessions.begin(lab.secret.shown()) != lab.sessions.begin(lab.secret.shown())


def test_the_end_of_a_session_is_known_while_it_lasts(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    found = lab.sessions.end_of(token)
    assert found is not None
    assert found.timestamp() == int(lab.clock.now + SESSION_SECONDS)
    lab.clock.now += SESSION_SECONDS
    assert lab.sessions.end_of(token) is None


def test_processes_with_another_secret_refuse_it(lab: Lab):
    token = lab.sessions.begin(lab.secret.shown())
    assert Sessions(lab.keys, "secret", lab.clock).caller(token).key_id == lab.key.key_id
    with pytest.raises(KeyRefused):
        Sessions(lab.keys, "other", lab.clock).caller(token)


async def test_a_session_counts_towards_the_limit_of_its_key():
    lab = Lab(RateLimit(0.1, 2))
    await lab.put(SecretHash(lab.secret.sha256))
    token = lab.sessions.begin(lab.secret.shown())
    lab.sessions.caller(token)
    with pytest.raises(RateLimited):
        lab.sessions.caller(token)
