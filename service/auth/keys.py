"""API keys: what they allow, how they look, and who a caller is.

A key is sent as `daband_<id>_<secret>`. The id is public (logs and audit trails name it); the
secret is 256 random bits and is kept as its SHA-256 alone, which is enough for so much entropy.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.auth.tenants import UNNAMED, TenantScope

PREFIX = "daband"
ID_BYTES, SECRET_BYTES = 8, 32


class Scope(StrEnum):
    """What a key allows; none implies another."""

    SELECT = "select"
    REWARD = "reward"
    TARGET = "target"
    ADMIN = "admin"


class KeyChangeKind(StrEnum):
    """What happened to a key."""

    CREATED = "created"
    ROTATED = "rotated"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests a second in the long run, and how many at once; none at all when it is 0."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class SecretHash:
    """One secret of a key, which works until `expires_at`, or as long as the key does."""

    sha256: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as the database knows it, with the secrets that may still work."""

    key_id: str
    label: str
    tenant_scope: TenantScope
    scopes: frozenset[Scope]
    rate_limit: RateLimit
    expires_at: datetime | None
    created_at: datetime | None = None
    revoked_at: datetime | None = None
    secrets: tuple[SecretHash, ...] = ()

    def log_context(self) -> dict[str, Any]:
        """Fields for a log line; nothing of a secret, hashed or not."""
        return {"key_id": self.key_id, "tenant": self.tenant_scope.tenant}


@dataclass(frozen=True, slots=True)
class KeyChange:
    """An entry of the keys' audit trail."""

    key_id: str
    kind: KeyChangeKind
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a key, or whoever reaches a service that asks for none."""

    tenant_scope: TenantScope
    scopes: frozenset[Scope]
    key_id: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether it may see what belongs to no tenant, such as the metrics of all experiments."""
        return self.tenant_scope == UNNAMED and Scope.ADMIN in self.scopes


EVERYONE = Caller(UNNAMED, frozenset(Scope))


@dataclass(frozen=True, slots=True, repr=False)
class NewSecret:
    """A secret that was just made; the only moment at which it can be shown."""

    key_id: str
    value: str

    @classmethod
    def for_key(cls, key_id: str) -> "NewSecret":
        """Another secret for a key."""
        return cls(key_id, secrets.token_hex(SECRET_BYTES))

    @property
    def sha256(self) -> str:
        """What is stored of it."""
        return digest(self.value)

    def shown(self) -> str:
        """The key as it is sent."""
        return f"{PREFIX}_{self.key_id}_{self.value}"


def new_key_id() -> str:
    """A public id."""
    return secrets.token_hex(ID_BYTES)


def digest(secret: str) -> str:
    """The SHA-256 of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def parsed(key: str) -> tuple[str, str] | None:
    """Id and secret of a key; none when it is none of ours."""
    prefix, _, rest = key.partition("_")
    key_id, _, secret = rest.partition("_")
    is_ours = prefix == PREFIX and len(key_id) == 2 * ID_BYTES and len(secret) == 2 * SECRET_BYTES
    return (key_id, secret) if is_ours else None
