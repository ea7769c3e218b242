"""`daband train` within this process."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from service.cli import train
from service.ops.supervisor import Readiness
from service.settings import Settings
from tests.support.storage import migrated, sqlite_url
from tests.support.waiting import eventually


@asynccontextmanager
async def training(folder: Path) -> AsyncIterator[None]:
    """The command at work."""
    url = sqlite_url(folder / "daband.db")
    await migrated(url)
    loop, readiness = asyncio.get_running_loop(), Readiness()
    unheard = signal.getsignal(signal.SIGTERM)
    task = asyncio.create_task(train.train(Settings(database_url=url), readiness))
    await eventually(lambda: signal.getsignal(signal.SIGTERM) is not unheard)
    try:
        yield
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await task
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        gc.unfreeze()


async def test_all_that_a_trainer_does_beside_its_loop_shares_few_threads(tmp_path: Path):
    all_there = threading.Barrier(train.FOLDING_THREADS + 1)

    def meet() -> str:
        """The thread's name, once another one is there or a while has passed."""
        with suppress(threading.BrokenBarrierError):
            all_there.wait(0.2)
        return threading.current_thread().name

    async with training(tmp_path):
        count = 2 * train.FOLDING_THREADS
        names = await asyncio.gather(*(asyncio.to_thread(meet) for _ in range(count)))
    assert set(names) <= {f"daband-folding_{number}" for number in range(train.FOLDING_THREADS)}


async def test_a_trainer_gives_free_memory_back_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given_back: list[int] = []
    monkeypatch.setattr(train, "GIVE_BACK_SECONDS", 0.01)
    monkeypatch.setattr(train, "give_back", lambda: given_back.append(len(given_back)))
    async with training(tmp_path):
        await eventually(lambda: len(given_back) > 3)


async def test_garbage_of_a_trainer_is_not_measured_by_what_start_up_made(tmp_path: Path):
    async with training(tmp_path):
        await eventually(lambda: gc.get_freeze_count() > 10_000)
        assert len(gc.get_objects()) < gc.get_freeze_count()
