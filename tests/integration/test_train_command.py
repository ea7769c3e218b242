"""`daband train` within this process."""

import asyncio
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from service.cli import _train
from service.readiness import Readiness
from service.settings import Settings
from tests.storage_tools import eventually, migrated, sqlite_url


async def test_all_that_a_trainer_does_beside_its_loop_shares_one_thread(tmp_path: Path):
    url = sqlite_url(tmp_path / "daband.db")
    await migrated(url)
    loop, readiness = asyncio.get_running_loop(), Readiness()
    unheard = readiness.on_failure
    training = asyncio.create_task(_train(Settings(database_url=url), readiness))
    await eventually(lambda: readiness.on_failure is not unheard)
    all_there = threading.Barrier(2)

    def meet() -> str:
        """The thread's name, once another one is there or a while has passed."""
        with suppress(threading.BrokenBarrierError):
            all_there.wait(0.2)
        return threading.current_thread().name

    names = await asyncio.gather(*(asyncio.to_thread(meet) for _ in range(4)))
    os.kill(os.getpid(), signal.SIGTERM)
    await training
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    assert names == ["daband-folding_0"] * 4
