"""Whether this process should be sent requests, and why not."""

from collections.abc import Callable


def _nobody() -> None:
    """Tell nobody."""


class Readiness:
    """Ready until it drains or a background task dies; there is no way back.

    `on_failure` is called when a task died, to end the process in order.
    """

    def __init__(self) -> None:
        self.is_ready = True
        self.is_draining = False
        self.dead_task: str | None = None
        self.on_failure: Callable[[], None] = _nobody

    def begin_drain(self) -> None:
        """The process is about to stop: finish what is there, take nothing new for long."""
        self.is_draining = True
        self.is_ready = False

    def fail(self, task: str) -> None:
        """A background task died."""
        if self.dead_task is None:
            self.dead_task = task
            self.is_ready = False
            self.on_failure()
