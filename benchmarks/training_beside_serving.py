"""The effect of a training on the latency of `/select`, in one run of a real server.

`python -m benchmarks.training_beside_serving [--training process thread] [--cycles 6]`: `daband serve` on SQLite,
as a user starts it. One caller asks for decisions at a steady rate all the time; meanwhile an
encoder trains, is activated, and nothing happens for a while, in cycles. Selects are distinguished by
what went on when they were sent, pooled over the cycles.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from daband_client import Client, Round

NAME, ARMS = "beside", 10
BANNER = re.compile(rb"daband serves on (http://\S+)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
WATCH_SECONDS = 0.1  # between two looks at what goes on
PATIENCE_SECONDS = 600.0
BATCH = 256


@dataclass(slots=True)
class Measured:
    """Latencies of selects (ms) by what went on meanwhile, and the server's own share of the CPU."""

    rest: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)
    swap: list[float] = field(default_factory=list)
    training_seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        """The figures for people."""
        for name in ("rest", "training", "swap"):
            values = np.array(getattr(self, name))
            p50, p99, longest = np.quantile(values, [0.5, 0.99, 1.0])
            yield f"  {name:9}{len(values):6} selects  p50 {p50:6.2f}  p99 {p99:6.2f}  longest {longest:6.2f} ms"
        yield f"  p99 while training ÷ at rest: {self.ratio:.2f} ({self.training_seconds:.0f} s of training)"

    @property
    def ratio(self) -> float:
        """p99 while an encoder trains over p99 at rest."""
        return float(np.quantile(self.training, 0.99) / np.quantile(self.rest, 0.99))


class Caller:
    """Asks for a decision at a steady rate, in a thread, on one connection; notes when and how long."""

    def __init__(self, port: int, size: int, rate: float) -> None:
        context = np.random.default_rng(7).standard_normal(size).round(3).tolist()
        body = json.dumps({"experiment": NAME, "source": {"context": context}}).encode()
        head = f"POST /select HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request, self._pause = head.encode() + body, 1.0 / rate
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.calls: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._call_on)

    def __enter__(self) -> "Caller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def between(self, start: float, end: float) -> list[float]:
        """Milliseconds of the calls that began and ended in this time."""
        return [1e3 * took for at, took in self.calls if start <= at and at + took <= end]

    def _call_on(self) -> None:
        due = time.perf_counter()
        while not self._is_over.wait(max(0.0, due - time.perf_counter())):
            started = time.perf_counter()
            self._socket.sendall(self._request)
            self._hear()
            self.calls.append((started, time.perf_counter() - started))
            due = max(due + self._pause, started)

    def _hear(self) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        found = LENGTH.search(head)
        assert found is not None
        while len(body) < int(found[1]):
            body += self._socket.recv(65536)


@contextmanager
def served(training: str, device: str) -> Iterator[str]:
    """`daband serve` with this setting; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service.cli", "serve", "--port", "0"]
        command += ["--data-dir", folder, "--device", device]
        patient = {"DABAND_STORAGE_TIMEOUT_SECONDS": "30"}  # the machine may be busy
        environment = {**os.environ, **patient, "DABAND_TRAINING": training}
        errors = Path(folder) / "errors"
        with errors.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603
                command, env=environment, stdout=subprocess.DEVNULL, stderr=file
            )
        try:
            while (found := BANNER.search(errors.read_bytes())) is None:
                assert process.poll() is None, errors.read_text()
                time.sleep(0.1)
            yield found[1].decode()
        finally:
            process.terminate()
            process.wait()


class Lab:
    """One experiment on a server: rewards start a training whenever an episode is full."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self._client = client
        self._options = options
        self._rng = np.random.default_rng(1)
        config = {
            "episode_length": options.episode,
            "steps_per_episode": options.steps,
            "hidden_sizes": options.hidden,
            "gate_margin": 1.0,  # so that every encoder is activated, and the swap is seen
            "gate_rank": 1.0,
        }
        shape = {"kind": "shared", "shape": [options.size]}
        arms = [f"arm-{number}" for number in range(ARMS)]
        client.create_experiment(
            name=NAME, arms=arms, context=shape, method="daband", seed=1, config=config
        )

    def fill_an_episode(self) -> None:
        """As many rounds with rewards as make the next training due."""
        left = self._options.episode
        while left:
            count = min(left, BATCH)
            contexts = self._rng.standard_normal((2, count, self._options.size)).round(3)
            rounds = [
                Round(source=source.tolist(), target=target.tolist())
                for source, target in zip(contexts[0], contexts[1] + 0.5, strict=True)
            ]
            made = self._client.select_many(NAME, rounds)
            chosen = [each.source.decision_id for each in made if each.source is not None]
            self._client.reward_many(dict.fromkeys(chosen, 1.0))
            left -= count

    def wait_until(self, training: bool) -> float:
        """When it was first seen that an encoder trains, or no longer does."""
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while time.perf_counter() < deadline:
            noted = self._client.state(NAME).noted
            if bool(noted.get("is_training")) is training:
                return time.perf_counter()
            time.sleep(WATCH_SECONDS)
        raise TimeoutError("nothing happens")


def measured(training: str, options: argparse.Namespace) -> Measured:
    """All cycles on one server; the first one, with its imports and first touches, does not count."""
    found = Measured()
    with served(training, options.device) as url, Client(url) as client:
        lab = Lab(client, options)
        with Caller(int(url.rpartition(":")[2]), options.size, options.rate) as caller:
            for cycle in range(options.cycles + 1):
                _play_cycle(lab, caller, options.rest_seconds, found if cycle else Measured())
    return found


def _play_cycle(lab: Lab, caller: Caller, rest_seconds: float, found: Measured) -> None:
    rest_from = time.perf_counter()
    deadline = rest_from + rest_seconds
    while time.perf_counter() < deadline:
        lab.wait_until(training=False)  # the same looks as while it trains
        time.sleep(WATCH_SECONDS)
    rest_to = time.perf_counter()
    lab.fill_an_episode()
    begun = lab.wait_until(training=True)
    ended = lab.wait_until(training=False)
    # The state tells of the end when all of the swap is over, within a second of it.
    swap_from = max(begun, ended - 1.0)
    time.sleep(1.0)
    found.rest += caller.between(rest_from, rest_to)
    found.training += caller.between(begun, swap_from)
    found.swap += caller.between(swap_from, time.perf_counter())
    found.training_seconds += swap_from - begun


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", nargs="+", default=["process", "thread"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--rate", type=float, default=100.0, help="selects a second")
    parser.add_argument("--rest-seconds", type=float, default=8.0)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 128])
    parser.add_argument("--episode", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args(arguments)
    for training in options.training:
        print(f"training in a {training}:")
        for line in measured(training, options).lines():
            print(line)


if __name__ == "__main__":
    main()
