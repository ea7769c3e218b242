"""Clients of Redis: of one server, or of the one that sentinels name."""

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

SENTINEL_SCHEME = "redis+sentinel"
SENTINEL_PORT = 26379


def redis_client(url: str, timeout_seconds: float) -> Redis:
    """A client for `redis://…` or `redis+sentinel://host:port,host:port/service/database`."""
    if urlsplit(url).scheme == SENTINEL_SCHEME:
        return _watched(url, timeout_seconds)
    return Redis.from_url(url, **_options(timeout_seconds))


async def close(client: Redis) -> None:
    """Close the client's connections, and those to sentinels."""
    await client.aclose()
    if isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _watched(url: str, timeout_seconds: float) -> Redis:
    parts = urlsplit(url)
    account, _, places = parts.netloc.rpartition("@")
    sentinels = [_address(place) for place in places.split(",")]
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not places:
        raise ValueError(f"{SENTINEL_SCHEME}://host:port,host:port/SERVICE/DATABASE needs them all")
    username, _, password = map(unquote, account.partition(":"))
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


def _address(place: str) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    return parts.hostname or "", parts.port or SENTINEL_PORT


def _options(timeout_seconds: float) -> dict[str, Any]:
    # The bus has its own timeouts and retries.
    return {
        "protocol": 2,
        "socket_connect_timeout": timeout_seconds,
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }
