"""Keys for tests, made as `daband keys create` makes them."""

from datetime import datetime

from service.auth.keys import ApiKey, NewSecret, RateLimit, Scope, new_key_id
from service.auth.tenants import TenantScope
from service.storage.database import Database
from service.storage.keys import Keys
from tests.support.storage import PATIENT

ALL = frozenset(Scope)
UNLIMITED = RateLimit(0, 1)


def api_key(
    tenant: TenantScope,
    scopes: frozenset[Scope] = ALL,
    rate_limit: RateLimit = UNLIMITED,
    expires_at: datetime | None = None,
) -> ApiKey:
    return ApiKey(new_key_id(), "", tenant, scopes, rate_limit, expires_at)


async def make_key(
    url: str, tenant: TenantScope, scopes: frozenset[Scope] = ALL, rate_limit: RateLimit = UNLIMITED
) -> str:
    """A new key in a database, as it is sent."""
    key = api_key(tenant, scopes, rate_limit)
    secret = NewSecret.for_key(key.key_id)
    async with Database.opened(url, PATIENT) as database:
        await Keys(database).create(key, secret, "test")
    return secret.shown()


def bearer(key: str) -> dict[str, str]:
    """The header that brings a key."""
    return {"Authorization": f"Bearer {key}"}
