"""The effect of open consoles on the latency of `/select`, in one run of a real server.

`python -m benchmarks.console_polls [--consoles 20] [--cycles 8]`: `daband serve` on SQLite. One caller asks for
decisions at a steady rate all the time. In turn no console is open, and 20 are: each polls the page of the
experiment every 4 s, as the page does. Every few seconds a reward comes, so that polls redraw the page.
"""

import argparse
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any

import httpx
import numpy as np

from benchmarks.training_beside_serving import ARMS, NAME, Caller, served
from daband_client import Client, Round

POLL_SECONDS = 4.0  # of a page
CHANGE_SECONDS = 5.0  # between two rewards
ROUNDS = 2000  # in the log before the run
COUNTS = ("polls", "redrawn", "refused")


class Console(threading.Thread):
    """An open page: it polls, and takes what it is given."""

    def __init__(self, url: str, delay: float) -> None:
        super().__init__(daemon=True)
        self._place = f"{url}/console/experiments/{NAME}/live"
        self._delay = delay
        self._is_over = threading.Event()
        # Without TLS, whose certificates take 30 ms of CPU to load.
        self._http = httpx.Client(timeout=60, headers={"HX-Request": "true"}, verify=False)  # noqa: S501
        self.polls, self.redrawn, self.refused = 0, 0, 0

    def __enter__(self) -> "Console":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._http.close()

    def run(self) -> None:
        """Poll until it is closed; the delay spreads consoles over the interval."""
        seen, wait = "", self._delay
        while not self._is_over.wait(wait):
            answer = self._http.get(self._place, params={"seen": seen})
            assert answer.status_code in (200, 204, 503), answer.text
            self.polls += 1
            self.refused += answer.status_code == 503  # shed under load; the page asks again
            if answer.status_code == 200:
                self.redrawn += 1
                seen = answer.text.partition("/live?seen=")[2].partition('"')[0]
            wait = POLL_SECONDS


class Consoles:
    """Open consoles in a process of their own, so that they do not slow the one that measures."""

    def __init__(self, url: str, count: int) -> None:
        context = get_context("spawn")
        self._is_over, self._found = context.Event(), context.SimpleQueue()
        self._process = context.Process(
            target=_poll, args=(url, count, self._is_over, self._found), daemon=True
        )
        self.counts = np.zeros(3, dtype=np.int64)  # polls, redrawn, refused

    def __enter__(self) -> "Consoles":
        self._process.start()
        self._found.get()  # they are open
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.counts = np.array(self._found.get())
        self._process.join()


def _poll(url: str, count: int, is_over: Event, found: SimpleQueue[Any]) -> None:
    delays = np.linspace(0.0, POLL_SECONDS, count, endpoint=False)
    with ExitStack() as stack:
        consoles = [stack.enter_context(Console(url, float(each))) for each in delays]
        found.put(None)
        is_over.wait()
    found.put([sum(getattr(each, name) for each in consoles) for name in COUNTS])


class Lab:
    """An experiment with a log, which changes now and then."""

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        self._rng = np.random.default_rng(1)
        self._size = size
        client.create_experiment(
            name=NAME,
            arms=[f"arm-{number}" for number in range(ARMS)],
            context={"kind": "shared", "shape": [size]},
            method="linucb",  # no training disturbs the comparison
            seed=1,
        )
        for _ in range(0, ROUNDS, 250):
            self.play(250)

    def play(self, count: int) -> None:
        """Rounds with rewards."""
        contexts = self._rng.standard_normal((count, self._size)).round(3).tolist()
        made = self._client.select_many(NAME, [Round(source=each) for each in contexts])
        chosen = [each.source.decision_id for each in made if each.source is not None]
        self._client.reward_many(dict.fromkeys(chosen, 1.0))

    def wait(self, seconds: float) -> tuple[float, float]:
        """Time in which a reward comes now and then; its beginning and end."""
        start = time.perf_counter()
        while (left := start + seconds - time.perf_counter()) > 0:
            self.play(1)
            time.sleep(min(CHANGE_SECONDS, left))
        return start, time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consoles", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=12.0, help="of a phase")
    parser.add_argument("--rate", type=float, default=100.0, help="selects a second")
    parser.add_argument("--size", type=int, default=32)
    options = parser.parse_args(arguments)
    alone: list[float] = []
    beside: list[float] = []
    counts = np.zeros(3, dtype=np.int64)
    with served("process", "cpu") as url, Client(url) as client:
        lab = Lab(client, options.size)
        with Caller(int(url.rpartition(":")[2]), options.size, options.rate) as caller:
            for cycle in range(options.cycles + 1):
                quiet = caller.between(*lab.wait(options.seconds))
                with Consoles(url, options.consoles) as consoles:
                    watched = caller.between(*lab.wait(options.seconds))
                if cycle:  # the first one loads templates
                    alone += quiet
                    beside += watched
                    counts += consoles.counts
    for name, values in (("alone", alone), ("beside", beside)):
        p50, p99 = np.quantile(values, [0.5, 0.99])
        print(f"  {name:7}{len(values):6} selects  p50 {p50:6.2f}  p99 {p99:6.2f} ms")
    ratio = np.quantile(beside, 0.99) / np.quantile(alone, 0.99)
    print(f"  p99 beside {options.consoles} consoles ÷ alone: {ratio:.2f}")
    print("  {} polls: {} redrawn, {} refused under load".format(*counts))


if __name__ == "__main__":
    main()
