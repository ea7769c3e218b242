"""Where a client of Redis connects, by its URL; nothing connects here."""

import pytest
from redis.asyncio.sentinel import SentinelConnectionPool

from service.bus.redis_client import redis_client

TIMEOUT = 0.06


def watched(url: str) -> SentinelConnectionPool:
    pool = redis_client(url, TIMEOUT).connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    return pool


def places(pool: SentinelConnectionPool) -> list[tuple[str, int]]:
    options = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    return [(each["host"], each["port"]) for each in options]


def test_a_plain_url_names_one_server():
    pool = redis_client("redis://cache:7000/3", TIMEOUT).connection_pool
    assert not isinstance(pool, SentinelConnectionPool)
    options = pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("cache", 7000, 3)


def test_sentinels_are_listed_before_the_service_and_the_database():
    pool = watched("redis+sentinel://s1:26000,s2,[::1]:26001/daband/2")
    assert places(pool) == [("s1", 26000), ("s2", 26379), ("::1", 26001)]
    assert pool.service_name == "daband"
    assert pool.connection_kwargs["db"] == 2
    assert pool.is_master


def test_brackets_are_no_error_wherever_python_thinks_they_belong():
    pool = watched("redis+sentinel://user:p[w@[::1],s2/daband")
    assert places(pool) == [("::1", 26379), ("s2", 26379)]
    assert pool.connection_kwargs["password"] == "p[w"  # noqa: S105


def test_passwords_are_those_of_redis_and_of_the_sentinels():
    pool = watched("redis+sentinel://user:p%40ss@s1/daband?sentinel_password=other")
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == (
        "user",
        "p@ss",
    )
    (sentinel,) = pool.sentinel_manager.sentinels
    assert sentinel.connection_pool.connection_kwargs["password"] == "other"  # noqa: S105
    assert pool.connection_kwargs["db"] == 0


def test_each_sentinel_gets_its_share_of_the_time():
    pool = watched("redis+sentinel://s1,s2/daband")
    for sentinel in pool.sentinel_manager.sentinels:
        options = sentinel.connection_pool.connection_kwargs
        assert options["socket_timeout"] == options["socket_connect_timeout"] == TIMEOUT / 3


@pytest.mark.parametrize("url", ["redis+sentinel://s1", "redis+sentinel:///daband"])
def test_an_incomplete_url_is_refused(url: str):
    with pytest.raises(ValueError, match="host:port"):
        redis_client(url, TIMEOUT)
