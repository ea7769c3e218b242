"""API keys, their audit trail and the sessions that were ended; secrets and tokens are stored as hashes."""

import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.auth.keys import (
    ApiKey,
    KeyChange,
    KeyChangeKind,
    NewSecret,
    RateLimit,
    Scope,
    SecretHash,
)
from service.auth.tenants import TenantScope
from service.errors import KeyRevoked, UnknownKey
from service.records import uuid7
from service.storage.database import Database
from service.storage.tables import (
    DatabaseNow,
    api_keys,
    columns_without,
    database_now,
    ended_sessions,
    key_changes,
    key_secrets,
)

Condition = sa.ColumnElement[bool]
Secrets = dict[str, list[SecretHash]]


class Keys:
    """The keys by id. Revoked keys are kept for the audit trail."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, key: ApiKey, secret: NewSecret, by: str) -> ApiKey:
        """Store a new key with its first secret."""

        async def insert(connection: AsyncConnection) -> ApiKey:
            await connection.execute(sa.insert(api_keys).values(_row(key)))
            await _add_secret(connection, secret)
            await _note(connection, key.key_id, KeyChangeKind.CREATED, by)
            return await _get(connection, key.key_id)

        return await self._database.write(insert)

    async def rotate(self, secret: NewSecret, overlap_seconds: float, by: str) -> ApiKey:
        """Give a key a new secret; its other secrets expire after at most `overlap_seconds`."""
        key_id = secret.key_id

        async def exchange(connection: AsyncConnection) -> ApiKey:
            if await _lock(connection, key_id):
                raise KeyRevoked
            end = await database_now(connection) + timedelta(seconds=overlap_seconds)
            lasts_longer = sa.or_(
                key_secrets.c.expires_at.is_(None), key_secrets.c.expires_at > end
            )
            await connection.execute(
                sa.update(key_secrets)
                .where(key_secrets.c.key_id == key_id, lasts_longer)
                .values(expires_at=end)
            )
            await _add_secret(connection, secret)
            await _note(connection, key_id, KeyChangeKind.ROTATED, by)
            return await _get(connection, key_id)

        return await self._database.write(exchange)

    async def revoke(self, key_id: str, by: str) -> ApiKey:
        """Revoke a key permanently; repeating it changes nothing."""

        async def end(connection: AsyncConnection) -> ApiKey:
            if not await _lock(connection, key_id):
                await connection.execute(
                    sa.update(api_keys)
                    .where(api_keys.c.key_id == key_id)
                    .values(revoked_at=DatabaseNow())
                )
                await _note(connection, key_id, KeyChangeKind.REVOKED, by)
            return await _get(connection, key_id)

        return await self._database.write(end)

    async def usable(self) -> list[ApiKey]:
        """The keys that are neither revoked nor expired, with their valid secrets."""
        return await self._database.read(lambda connection: _find(connection, _is_usable()))

    async def has_usable(self) -> bool:
        query = sa.select(sa.exists().where(_is_usable()))
        return bool(await self._database.scalar(query))

    async def version(self) -> int:
        """A number that changes with every change of a key."""
        query = sa.select(sa.func.count()).select_from(key_changes)
        count = await self._database.scalar(query)
        return int(count or 0)

    async def changes(self) -> list[KeyChange]:
        """All changes of keys, in order."""
        columns = columns_without(key_changes, "change_id")
        query = sa.select(*columns).order_by(key_changes.c.created_at, key_changes.c.change_id)
        rows = await self._database.rows(query)
        return [KeyChange(key_id, KeyChangeKind(kind), by, at) for key_id, kind, by, at in rows]

    async def list(self) -> list[ApiKey]:
        """All keys, the oldest first."""
        return await self._database.read(lambda connection: _find(connection, sa.true()))


class EndedSessions:
    """The ended sessions by the hash of their token: who reads the table cannot use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, sha256: str, expires_at: datetime) -> None:
        """End a session; repeating it changes nothing. Expired sessions are forgotten here."""

        async def insert(connection: AsyncConnection) -> None:
            await connection.execute(
                sa.delete(ended_sessions).where(ended_sessions.c.expires_at <= DatabaseNow())
            )
            if not await connection.scalar(_ended(sha256)):
                row = {"sha256": sha256, "expires_at": expires_at}
                await connection.execute(sa.insert(ended_sessions).values(row))

        await self._database.write(insert)

    async def has(self, sha256: str) -> bool:
        """Whether a session was ended."""
        return bool(await self._database.scalar(_ended(sha256)))


def _is_usable() -> Condition:
    lasts = sa.or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > DatabaseNow())
    return sa.and_(api_keys.c.revoked_at.is_(None), lasts)


async def _lock(connection: AsyncConnection, key_id: str) -> bool:
    """Lock the key until the transaction ends; returns whether it was revoked."""
    query = sa.select(api_keys.c.revoked_at).where(api_keys.c.key_id == key_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise UnknownKey
    return row.revoked_at is not None


async def _add_secret(connection: AsyncConnection, secret: NewSecret) -> None:
    await connection.execute(
        sa.insert(key_secrets).values(
            sha256=secret.sha256, key_id=secret.key_id, created_at=DatabaseNow()
        )
    )


async def _note(connection: AsyncConnection, key_id: str, kind: KeyChangeKind, by: str) -> None:
    await connection.execute(
        sa.insert(key_changes).values(
            change_id=uuid7(),
            key_id=key_id,
            kind=kind.value,
            made_by=by,
            created_at=DatabaseNow(),
        )
    )


async def _get(connection: AsyncConnection, key_id: str) -> ApiKey:
    found = await _find(connection, api_keys.c.key_id == key_id)
    if not found:
        raise UnknownKey
    return found[0]


async def _find(connection: AsyncConnection, condition: Condition) -> list[ApiKey]:
    query = sa.select(api_keys).where(condition).order_by(api_keys.c.created_at, api_keys.c.key_id)
    rows = (await connection.execute(query)).mappings().all()
    secrets = await _working_secrets(connection, condition)
    return [_key(row, secrets) for row in rows]


async def _working_secrets(connection: AsyncConnection, condition: Condition) -> Secrets:
    works = sa.or_(key_secrets.c.expires_at.is_(None), key_secrets.c.expires_at > DatabaseNow())
    query = (
        sa.select(key_secrets.c.key_id, key_secrets.c.sha256, key_secrets.c.expires_at)
        .join(api_keys)
        .where(condition, works)
        .order_by(key_secrets.c.created_at)
    )
    found: Secrets = defaultdict(list)
    for key_id, sha256, expires_at in await connection.execute(query):
        found[key_id].append(SecretHash(sha256, expires_at))
    return found


def _row(key: ApiKey) -> dict[str, Any]:
    names = None if key.tenant_scope.names is None else json.dumps(sorted(key.tenant_scope.names))
    return {
        "key_id": key.key_id,
        "label": key.label,
        "tenant": key.tenant_scope.tenant,
        "experiments": names,
        "scopes": " ".join(sorted(key.scopes)),
        "requests_per_second": key.rate_limit.per_second,
        "burst": key.rate_limit.burst,
        "created_at": DatabaseNow(),
        "expires_at": key.expires_at,
    }


def _key(row: sa.RowMapping, secrets: Secrets) -> ApiKey:
    names = row["experiments"]
    return ApiKey(
        key_id=row["key_id"],
        label=row["label"],
        tenant_scope=TenantScope(
            row["tenant"], None if names is None else frozenset(json.loads(names))
        ),
        scopes=frozenset(map(Scope, row["scopes"].split())),
        rate_limit=RateLimit(row["requests_per_second"], row["burst"]),
        expires_at=row["expires_at"],
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
        secrets=tuple(secrets.get(row["key_id"], ())),
    )


def _ended(sha256: str) -> sa.Select[bool]:
    return sa.select(sa.exists().where(ended_sessions.c.sha256 == sha256))
