"""A Redis, its copy, and the sentinels that promote the copy when the Redis is gone."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from redis import Redis

from tests.support.processes.packages import program
from tests.support.processes.servers import (
    RedisServer,
    Server,
    answers,
    give_to_child_user,
    running_server,
)
from tests.support.waiting import wait_until

NAME = "daband"
SENTINELS = 3
DOWN_MILLISECONDS = 1000


class Sentinel(Server):
    """One of the sentinels; most of them must agree that the Redis is gone."""

    def __init__(self, redis_port: int) -> None:
        super().__init__("sentinel")
        self._file = self.folder / "sentinel.conf"
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.folder}",
            f"sentinel monitor {NAME} 127.0.0.1 {redis_port} {SENTINELS // 2 + 1}",
            f"sentinel down-after-milliseconds {NAME} {DOWN_MILLISECONDS}",
            f"sentinel failover-timeout {NAME} 5000",
        )
        self._file.write_text("\n".join(lines) + "\n")
        give_to_child_user(self._file)  # sentinels write down whom they know

    def command(self) -> list[str]:
        return [program("redis-sentinel"), str(self._file)]

    def is_answering(self) -> bool:
        return answers(self.port)

    def master(self) -> dict[str, object]:
        """What it knows of the Redis in charge."""
        with Redis(port=self.port, decode_responses=True) as client:
            found: dict[str, object] = client.sentinel_master(NAME)
            return found


class WatchedRedis:
    """Two Redis servers under three sentinels."""

    def __init__(self, first: RedisServer, second: RedisServer, sentinels: list[Sentinel]) -> None:
        self.first = first
        self.second = second
        self._sentinels = sentinels

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{each.port}" for each in self._sentinels)
        return f"redis+sentinel://{places}/{NAME}/0"

    def is_ready(self) -> bool:
        """Whether every sentinel knows the others and the copy, which has caught up."""
        known = [each.master() for each in self._sentinels]
        with Redis(port=self.second.port, decode_responses=True) as client:
            copied = client.info("replication").get("master_link_status") == "up"
        others = SENTINELS - 1
        return copied and all(
            (each["num-other-sentinels"], each["num-slaves"]) == (others, 1) for each in known
        )

    def has_promoted(self) -> bool:
        return all(each.master()["port"] == self.second.port for each in self._sentinels)

    def kill(self) -> None:
        """Lose the first Redis, for good."""
        self.first.kill()

    def start(self) -> None:
        wait_until(self.has_promoted)


@contextmanager
def watched_redis() -> Iterator[WatchedRedis]:
    """All of them, ready; they are removed in the end."""
    with ExitStack() as stack:
        run = stack.enter_context
        first = run(running_server(RedisServer()))
        second = run(running_server(RedisServer(first.port)))
        sentinels = [run(running_server(Sentinel(first.port))) for _ in range(SENTINELS)]
        watched = WatchedRedis(first, second, sentinels)
        wait_until(watched.is_ready)
        yield watched
