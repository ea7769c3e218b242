"""API keys, their scopes and format, and callers.

A key is sent as `daband_<id>_<secret>`. The id is public and appears in logs and audit trails. The secret
is 256 random bits; only its SHA-256 is stored, which is safe for this much entropy.
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
    """What a key allows; no scope implies another."""

    SELECT = "select"
    REWARD = "reward"
    TARGET = "target"
    ADMIN = "admin"


class KeyChangeKind(StrEnum):
    """The kinds of key changes."""

    CREATED = "created"
    ROTATED = "rotated"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The sustained requests per second and the burst; 0 per second means no limit."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class SecretHash:
    """One secret of a key, valid until `expires_at` or as long as the key."""

    sha256: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key, with the secrets that may still be valid."""

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
        """Fields for a log line, without secrets or their hashes."""
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
    """The caller of a request: a key, or any caller of a service without keys."""

    tenant_scope: TenantScope
    scopes: frozenset[Scope]
    key_id: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether the caller may see data of all tenants, such as metrics."""
        return self.tenant_scope == UNNAMED and Scope.ADMIN in self.scopes


EVERYONE = Caller(UNNAMED, frozenset(Scope))


@dataclass(frozen=True, slots=True, repr=False)
class NewSecret:
    """A newly generated secret; it cannot be shown again later."""

    key_id: str
    value: str

    @classmethod
    def for_key(cls, key_id: str) -> "NewSecret":
        return cls(key_id, secrets.token_hex(SECRET_BYTES))

    @property
    def sha256(self) -> str:
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
    """Id and secret of a key; None if it does not have the format."""
    prefix, _, rest = key.partition("_")
    key_id, _, secret = rest.partition("_")
    is_ours = prefix == PREFIX and len(key_id) == 2 * ID_BYTES and len(secret) == 2 * SECRET_BYTES
    return (key_id, secret) if is_ours else None
