"""Clients of Redis: of one server, or of the one that sentinels name."""

from typing import Any
from urllib.parse import parse_qs, unquote

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from service.ops.addresses import split_hosts

SENTINEL_SCHEME = "redis+sentinel"
SENTINEL_PORT = 26379


def redis_client(url: str, timeout_seconds: float) -> Redis:
    """A client for `redis://…` or `redis+sentinel://host:port,host:port/service/database`."""
    if url.startswith(f"{SENTINEL_SCHEME}://"):
        return _watched(url, timeout_seconds)
    return Redis.from_url(url, **_options(timeout_seconds))


async def close(client: Redis) -> None:
    """Close the client's connections, and those to sentinels."""
    await client.aclose()
    if isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _watched(url: str, timeout_seconds: float) -> Redis:
    parts = split_hosts(url)
    sentinels = parts.addresses(SENTINEL_PORT)
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not parts.hosts:
        raise ValueError(f"{SENTINEL_SCHEME}://host:port,host:port/SERVICE/DATABASE needs them all")
    username, _, password = map(unquote, parts.account.partition(":"))
    watching = _options(timeout_seconds / (len(sentinels) + 1))  # the others must get their turn
    manager = Sentinel(  # type: ignore[no-untyped-call]
        sentinels,
        sentinel_kwargs={
            **watching,
            "socket_timeout": watching["socket_connect_timeout"],
            "password": parse_qs(parts.query).get("sentinel_password", [None])[0],
        },
        **_options(timeout_seconds),
        username=username or None,
        password=password or None,
        db=int(database or 0),
    )
    client: Redis = manager.master_for(service)
    return client


def _options(timeout_seconds: float) -> dict[str, Any]:
    # The bus has its own timeouts and retries.
    return {
        "protocol": 2,
        "socket_connect_timeout": timeout_seconds,
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }
