"""The keys' contract, on SQLite and on Postgres."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from service.auth.keys import ApiKey, KeyChangeKind, NewSecret, RateLimit, Scope, new_key_id
from service.auth.tenants import TenantScope
from service.errors import KeyRevoked, UnknownKey
from service.records import utc_now
from service.storage.database import Database
from service.storage.keys import Keys


@pytest.fixture
def keys(database: Database) -> Keys:
    return Keys(database)


def key(**fields: Any) -> ApiKey:
    given: dict[str, Any] = {
        "key_id": new_key_id(),
        "label": "the lab's robot",
        "tenant_scope": TenantScope("acme", frozenset({"doses", "offers"})),
        "scopes": frozenset({Scope.SELECT, Scope.REWARD}),
        "rate_limit": RateLimit(12.5, 30),
        "expires_at": None,
        **fields,
    }
    return ApiKey(**given)


async def made(keys: Keys, **fields: Any) -> tuple[ApiKey, NewSecret]:
    wanted = key(**fields)
    secret = NewSecret.for_key(wanted.key_id)
    return await keys.create(wanted, secret, "alice"), secret


async def test_a_key_is_found_as_it_was_made(keys: Keys):
    found, secret = await made(keys)
    assert found.created_at is not None
    wanted = key(key_id=found.key_id, created_at=found.created_at, secrets=found.secrets)
    assert await keys.list() == await keys.usable() == [found] == [wanted]
    assert [each.sha256 for each in found.secrets] == [secret.sha256]


async def test_a_key_for_all_experiments_stays_one(keys: Keys):
    found, _ = await made(keys, tenant_scope=TenantScope(), rate_limit=RateLimit(0, 1))
    assert (found.tenant_scope, found.rate_limit) == (TenantScope(), RateLimit(0, 1))


async def test_after_a_rotation_old_and_new_work_for_the_overlap(keys: Keys):
    before, old = await made(keys)
    new = NewSecret.for_key(before.key_id)
    found = await keys.rotate(new, 3600, "bob")
    ends = {each.sha256: each.expires_at for each in found.secrets}
    assert ends.keys() == {old.sha256, new.sha256}
    assert ends[new.sha256] is None
    end = ends[old.sha256]
    assert end is not None
    assert abs(end - utc_now() - timedelta(hours=1)) < timedelta(minutes=5)


async def test_another_rotation_never_lengthens_an_overlap(keys: Keys):
    before, old = await made(keys)
    first = await keys.rotate(NewSecret.for_key(before.key_id), 60, "bob")
    second = await keys.rotate(NewSecret.for_key(before.key_id), 3600, "bob")
    assert len(second.secrets) == 3
    ends = [{each.sha256: each.expires_at for each in found.secrets} for found in (first, second)]
    assert ends[0][old.sha256] == ends[1][old.sha256]


async def test_without_an_overlap_the_old_secret_ends_at_once(keys: Keys):
    before, _ = await made(keys)
    new = NewSecret.for_key(before.key_id)
    await keys.rotate(new, 0, "bob")
    (found,) = await keys.usable()
    assert [each.sha256 for each in found.secrets] == [new.sha256]


async def test_what_is_revoked_or_expired_is_not_usable(keys: Keys):
    revoked, _ = await made(keys)
    await made(keys, expires_at=utc_now() - timedelta(days=1))
    lasting, _ = await made(keys, expires_at=utc_now() + timedelta(days=1))
    await keys.revoke(revoked.key_id, "bob")
    assert [each.key_id for each in await keys.usable()] == [lasting.key_id]
    assert len(await keys.list()) == 3


async def test_whether_there_is_a_usable_key_is_known(keys: Keys):
    assert not await keys.has_usable()
    found, _ = await made(keys)
    assert await keys.has_usable()
    await keys.revoke(found.key_id, "bob")
    assert not await keys.has_usable()


async def test_revoking_is_permanent_and_idempotent(keys: Keys):
    found, _ = await made(keys)
    first = await keys.revoke(found.key_id, "bob")
    assert first.revoked_at is not None
    assert await keys.revoke(found.key_id, "bob") == first
    with pytest.raises(KeyRevoked):
        await keys.rotate(NewSecret.for_key(found.key_id), 60, "bob")


async def test_an_unknown_key_is_refused(keys: Keys):
    with pytest.raises(UnknownKey):
        await keys.revoke("nobody", "bob")
    with pytest.raises(UnknownKey):
        await keys.rotate(NewSecret.for_key("nobody"), 60, "bob")


async def test_every_change_is_announced_and_makes_another_version(keys: Keys):
    versions = [await keys.version()]
    found, _ = await made(keys)
    versions.append(await keys.version())
    await keys.rotate(NewSecret.for_key(found.key_id), 60, "bob")
    versions.append(await keys.version())
    await keys.revoke(found.key_id, "carol")
    versions.append(await keys.version())
    assert len(set(versions)) == 4
    received = [(each.key_id, each.kind, each.by) for each in await keys.changes()]
    kinds = zip(KeyChangeKind, ("alice", "bob", "carol"), strict=True)
    assert received == [(found.key_id, kind, by) for kind, by in kinds]


async def test_rotations_at_once_leave_one_secret_without_an_end(keys: Keys):
    found, _ = await made(keys)
    rotations = (keys.rotate(NewSecret.for_key(found.key_id), 60, "bob") for _ in range(5))
    await asyncio.gather(*rotations)
    (after,) = await keys.usable()
    assert len(after.secrets) == 6
    assert sum(each.expires_at is None for each in after.secrets) == 1
