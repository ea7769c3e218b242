"""Named background tasks; when one dies the process is told to end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


def _ignore(task: str) -> None:
    """Say nothing."""


class Supervisor:
    """Runs background tasks that must not end before they are stopped.

    `on_start` and `on_death` are told a task's name.
    """

    def __init__(
        self, on_death: Callable[[str], None], on_start: Callable[[str], None] = _ignore
    ) -> None:
        self._on_death = on_death
        self._on_start = on_start
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task under a name."""
        self._on_start(name)
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    async def close(self) -> None:
        """Cancel the tasks, the newest first, and wait for them."""
        while self._tasks:
            task = self._tasks.pop()
            task.remove_done_callback(self._ended)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        log.error(
            "a background task died",
            extra={"action": "task_died", "task": task.get_name()},
            exc_info=error,
        )
        self._on_death(task.get_name())
