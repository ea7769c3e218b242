"""Supervision of named background tasks; if one dies, the process ends."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

LONGEST_PAUSE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Supervisor:
    """Runs background tasks that must not end before they are stopped.

    `on_start`, `on_death` and `on_restart` are called with the task's name.
    """

    def __init__(
        self,
        on_death: Callable[[str], None],
        on_start: Callable[[str], None] = lambda task: None,
        on_restart: Callable[[str], None] = lambda task: None,
        pause_seconds: float = 1.0,
    ) -> None:
        self._on_death = on_death
        self._on_start = on_start
        self._on_restart = on_restart
        self._pause_seconds = pause_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._finite: set[str] = set()

    def start(self, name: str, work: Coroutine[Any, Any, None], *, may_end: bool = False) -> None:
        """Run a named task; if it `may_end`, ending without an error is not a death."""
        self._on_start(name)
        if may_end:
            self._finite.add(name)
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def start_restarting(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task that is restarted when it dies, after a pause that grows while it dies soon."""
        self.start(name, self._repeated(name, make))

    async def _repeated(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop, pause = asyncio.get_running_loop(), self._pause_seconds
        while True:
            began = loop.time()
            try:
                await make()
            except Exception:
                log.exception(
                    "a background task died and is restarted",
                    extra={"action": "task_restarted", "task": name},
                )
            self._on_restart(name)
            if loop.time() - began > LONGEST_PAUSE_SECONDS:
                pause = self._pause_seconds
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def close(self) -> None:
        """Cancel the tasks, the newest first, and wait for them."""
        while self._tasks:
            task = self._tasks.pop()
            task.remove_done_callback(self._ended)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled() and task.get_name() in self._finite:
            return
        log.error(
            "a background task died",
            extra={"action": "task_died", "task": task.get_name()},
            exc_info=error,
        )
        self._on_death(task.get_name())


class Readiness:
    """Ready until the process drains or a background task dies, and never again.

    `on_failure` is called when a task dies, to shut down gracefully.
    """

    def __init__(self) -> None:
        self.is_ready = True
        self.is_draining = False
        self.dead_task: str | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def begin_drain(self) -> None:
        """The process is about to stop."""
        self.is_draining = True
        self.is_ready = False

    def fail(self, task: str) -> None:
        """A background task died."""
        if self.dead_task is None:
            self.dead_task = task
            self.is_ready = False
            self.on_failure()
