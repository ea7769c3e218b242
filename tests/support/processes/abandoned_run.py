"""A test run to be killed: starts a server with workers and a Redis, pauses some, says their ids.

Run as `python -m tests.support.processes.abandoned_run FOLDER POSTGRES_URL`.
"""

import asyncio
import signal
import sys
from pathlib import Path

import psutil

from tests.support.processes.daband import Daband, Server
from tests.support.processes.servers import RedisServer


async def main(folder: Path, postgres_url: str) -> None:
    redis = RedisServer()
    redis.start()
    stores = {"DATABASE_URL": postgres_url, "REDIS_URL": redis.url}
    server = Server(folder, "--workers", "2", "--no-trainer", **stores)
    trainer = Daband(folder, "train", **stores)
    server.start()
    trainer.start()
    await server.ready()
    redis.pause()
    trainer.send(signal.SIGSTOP)
    started = psutil.Process().children(recursive=True)
    sys.stdout.write(" ".join(str(each.pid) for each in started) + f" {redis.folder}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
