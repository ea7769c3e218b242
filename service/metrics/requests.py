"""Metrics of requests and of the processes that answer them."""

from collections.abc import Iterable

from service.metrics.registered import Registered

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics(Registered):
    """What callers feel."""

    def __init__(self) -> None:
        super().__init__()
        self.request_seconds = self._histogram(
            "daband_request_seconds",
            "Time to answer a request; `status` is a class, `gone` where the caller left first",
            SECONDS,
            *("route", "method", "status"),
        )
        self.requests_in_flight = self._gauge(
            "daband_requests_in_flight", "Requests at work", "livesum"
        )
        self.problems = self._counter(
            "daband_problems_total", "Problems that callers were answered, by slug", "slug"
        )
        self.processes = self._gauge(
            "daband_processes", "Processes that serve, or train by themselves", "livesum"
        )
        self.process_starts = self._counter(
            "daband_process_starts_total", "Starts of such processes, replacements included"
        )
        self.lost_devices = self._counter(
            "daband_devices_lost_total", "Losses of the GPU, after which the CPU computes"
        )
        self.task_deaths = self._counter(
            "daband_task_deaths_total", "Background tasks that died", "task"
        )

    def note_lost_device(self) -> None:
        """The GPU is lost; the CPU computes."""
        self.lost_devices.inc()

    def observe_request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """A request is over that took so long; no status if it was not answered."""
        self.request_seconds.labels(route, method, _status_class(status)).observe(seconds)

    def expect_problems(self, slugs: Iterable[str]) -> None:
        """Show these from the start: a rate cannot see the step from nothing to the first."""
        for slug in slugs:
            self.problems.labels(slug)

    def expect_task(self, task: str) -> None:
        """A background task begins; that it dies would be its first count."""
        self.task_deaths.labels(task)

    def count_start(self) -> None:
        """This process has begun to serve."""
        self.processes.set(1)
        self.process_starts.inc()


def _status_class(status: int | None) -> str:
    return "gone" if status is None else f"{status // 100}xx"
