"""A task that may be restarted never ends the process, and its pauses grow only while it dies soon."""

import asyncio

from service.ops.supervisor import LONGEST_PAUSE_SECONDS, Supervisor
from tests.support.virtual_time import run_virtually


class Failing:
    """A task that fails, each time after its next duration."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)
        self.started_at: list[float] = []

    async def run(self) -> None:
        self.started_at.append(asyncio.get_running_loop().time())
        seconds = next(self._seconds, None)
        if seconds is None:
            await asyncio.Event().wait()
        await asyncio.sleep(seconds or 0)
        raise ExceptionGroup("of any kind", [KeyError("one"), ValueError("two")])


async def restarted(task: Failing, seconds: float) -> tuple[list[str], list[str]]:
    """The deaths and restarts that a supervisor tells of within some seconds."""
    deaths, restarts = list[str](), list[str]()
    supervisor = Supervisor(deaths.append, on_restart=restarts.append, pause_seconds=1.0)
    supervisor.start_restarting("bus", task.run)
    await asyncio.sleep(seconds)
    await supervisor.close()
    return deaths, restarts


def test_a_task_that_dies_again_and_again_is_restarted_ever_later():
    task = Failing(*[0.0] * 8)
    deaths, restarts = run_virtually(restarted(task, 1000))
    assert deaths == []
    assert restarts == ["bus"] * 8
    assert task.started_at == [0, 1, 3, 7, 15, 31, 63, 123, 183]


def test_after_a_long_life_the_pauses_are_short_again():
    task = Failing(0.0, 0.0, 0.0, 10 * LONGEST_PAUSE_SECONDS)
    run_virtually(restarted(task, 1000))
    assert task.started_at == [0, 1, 3, 7, 608]
