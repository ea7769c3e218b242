"""Keys in memory: which are right, until when, and how often the database is asked."""

import gc
from dataclasses import replace
from datetime import UTC, datetime
from types import FunctionType, ModuleType

import pytest

from service.auth.key_ring import KeyRing
from service.auth.keys import ApiKey, NewSecret, RateLimit, SecretHash, digest, parsed
from service.auth.tenants import TenantScope
from service.errors import KeyRefused, RateLimited, StorageUnavailable
from tests.support.keys import api_key
from tests.support.storage import running
from tests.support.waiting import eventually

ACME = TenantScope("acme")


class Source:
    """Keys that the test holds in its hand."""

    def __init__(self) -> None:
        self.keys: list[ApiKey] = []
        self.changes = 0
        self.reads = 0
        self.is_away = False

    def put(self, *keys: ApiKey) -> None:
        self.keys = list(keys)
        self.changes += 1

    async def version(self) -> int:
        if self.is_away:
            raise StorageUnavailable
        return self.changes

    async def usable(self) -> list[ApiKey]:
        self.reads += 1
        return self.keys


class Clocks:
    """A wall clock and a stopwatch that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def clock() -> Clocks:
    return Clocks()


@pytest.fixture
def ring(clock: Clocks) -> KeyRing:
    return KeyRing(clock, clock)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def with_secret(key: ApiKey, ends_at: float | None = None) -> tuple[ApiKey, str]:
    """The key with one more secret, and the key as it is sent."""
    secret = NewSecret.for_key(key.key_id)
    kept = SecretHash(secret.sha256, None if ends_at is None else at(ends_at))
    return replace(key, secrets=(*key.secrets, kept)), secret.shown()


async def test_a_right_key_identifies_its_caller(ring: KeyRing, source: Source):
    key, shown = with_secret(api_key(ACME))
    source.put(key)
    await ring.refresh(source)
    caller = ring.caller(shown)
    assert (caller.key_id, caller.tenant_scope, caller.scopes) == (key.key_id, ACME, key.scopes)


async def test_any_other_text_is_refused(ring: KeyRing, source: Source):
    key, shown = with_secret(api_key(ACME))
    other, _ = with_secret(api_key(ACME))
    source.put(key, other)
    await ring.refresh(source)
    secret = shown.rpartition("_")[2]
    for wrong in (
        *("", "daband", "daband__", shown[:-1], shown + "0", shown.upper(), f"x{shown}"),
        f"daband_{other.key_id}_{secret}",
        f"daband_{key.key_id}_{'0' * 64}",
        f"daband_{'0' * 16}_{secret}",
        f"daband_{key.key_id}_{digest(secret)}",
        f"daband_{key.key_id}_{'é' * 64}",
    ):
        with pytest.raises(KeyRefused):
            ring.caller(wrong)


def test_a_key_that_is_not_in_the_ring_is_refused(ring: KeyRing):
    with pytest.raises(KeyRefused):
        ring.caller(NewSecret.for_key("0" * 16).shown())


async def test_a_key_ends_when_it_expires(ring: KeyRing, source: Source, clock: Clocks):
    key, shown = with_secret(api_key(ACME, expires_at=at(1010)))
    source.put(key)
    await ring.refresh(source)
    clock.now = 1009.9
    assert ring.caller(shown)
    clock.now = 1010.0
    with pytest.raises(KeyRefused):
        ring.caller(shown)


async def test_an_old_secret_works_through_its_overlap(
    ring: KeyRing, source: Source, clock: Clocks
):
    key, old = with_secret(api_key(ACME), ends_at=1010)
    key, new = with_secret(key)
    source.put(key)
    await ring.refresh(source)
    assert ring.caller(old) == ring.caller(new)
    clock.now = 1010.0
    assert ring.caller(new)
    with pytest.raises(KeyRefused):
        ring.caller(old)


async def test_the_keys_are_read_when_something_changed_and_else_never(
    ring: KeyRing, source: Source
):
    key, shown = with_secret(api_key(ACME))
    source.put(key)
    for _ in range(3):
        await ring.refresh(source)
        ring.caller(shown)
    assert source.reads == 1
    source.put()
    await ring.refresh(source)
    with pytest.raises(KeyRefused):
        ring.caller(shown)


async def test_too_many_requests_are_refused_with_a_time_to_retry(
    ring: KeyRing, source: Source, clock: Clocks
):
    key, shown = with_secret(api_key(ACME, rate_limit=RateLimit(0.25, 2)))
    source.put(key)
    await ring.refresh(source)
    assert ring.caller(shown) == ring.caller(shown)
    with pytest.raises(RateLimited) as refused:
        ring.caller(shown)
    assert refused.value.retry_after_seconds == 4
    source.put(key)
    await ring.refresh(source)
    with pytest.raises(RateLimited):  # another key's change fills nobody's bucket
        ring.caller(shown)
    clock.now += 4
    assert ring.caller(shown)


async def test_wrong_secrets_use_up_nothing_of_a_limit(ring: KeyRing, source: Source):
    key, shown = with_secret(api_key(ACME, rate_limit=RateLimit(1, 1)))
    source.put(key)
    await ring.refresh(source)
    for _ in range(5):
        with pytest.raises(KeyRefused):
            ring.caller(NewSecret.for_key(key.key_id).shown())
    assert ring.caller(shown)


async def test_while_the_database_is_away_the_keys_last_known_work(ring: KeyRing, source: Source):
    key, shown = with_secret(api_key(ACME))
    other, other_shown = with_secret(api_key(ACME))
    source.put(key)
    await ring.refresh(source)
    source.is_away = True
    async with running(ring.follow(source, 0.001)):
        assert ring.caller(shown)
        source.put(other)
        source.is_away = False
        await eventually(lambda: source.reads == 2)
        assert ring.caller(other_shown)


def test_a_key_is_taken_apart():
    secret = NewSecret.for_key("0123456789abcdef")
    assert parsed(secret.shown()) == ("0123456789abcdef", secret.value)
    assert len(secret.value) == 64
    assert secret.value not in repr(secret)
    assert secret.value not in str(secret)


def reachable(start: object) -> list[object]:
    """All that an object refers to, directly or not; code and classes are left out."""
    found: dict[int, object] = {}
    pending = [start]
    while pending:
        each = pending.pop()
        if id(each) not in found and not isinstance(each, type | FunctionType | ModuleType):
            found[id(each)] = each
            pending += gc.get_referents(each)
    return list(found.values())


async def test_no_plain_key_stays_in_memory(ring: KeyRing, source: Source):
    key, shown = with_secret(api_key(ACME))
    source.put(key)
    await ring.refresh(source)
    for _ in range(3):
        assert ring.caller(shown).key_id == key.key_id
    texts = [each for each in reachable(ring) if isinstance(each, str)]
    assert key.secrets[0].sha256 in texts
    assert not [each for each in texts if shown.rpartition("_")[2] in each]
