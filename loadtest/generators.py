"""Several generator processes that play a load together, and what they have seen, merged."""

import asyncio
import multiprocessing
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import uvloop

from loadtest.arrivals import Share
from loadtest.generator import Generator, Load
from loadtest.http_client import HttpClient
from loadtest.request_counts import RequestCounts
from loadtest.service_under_test import ServiceUnderTest
from loadtest.traffic import Caller, Traffic, Workload

LEAD_SECONDS = 0.3  # for the load to reach every process before it starts
WARM_CONNECTIONS = 16
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class GeneratorOptions:
    """How requests are made; connections are those of one process."""

    processes: int = 1
    timeout_seconds: float = 5.0
    max_connections: int = 4096
    seed: int = 1


@dataclass
class Played:
    """What became of a load."""

    load: Load
    counts: RequestCounts
    cpu_shares: list[float] = field(default_factory=list)  # of a core, by generator


class Generators:
    """Generator processes, alive from load to load so that their connections are."""

    def __init__(
        self, service: ServiceUnderTest, workload: Workload, options: GeneratorOptions
    ) -> None:
        self._caller = Caller(service.url, dict(service.headers))
        self._workload = workload
        self._options = options
        self._children: list[tuple[SpawnProcess, Connection]] = []

    def __enter__(self) -> "Generators":
        context = multiprocessing.get_context("spawn")
        for index in range(self._options.processes):
            ours, theirs = context.Pipe()
            share = Share(index, self._options.processes)
            arguments = (theirs, self._caller, self._workload, self._options, share)
            process = context.Process(target=generate, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._children.append((process, ours))
        for _, pipe in self._children:
            assert pipe.recv() == "ready"
        return self

    def __exit__(self, *raised: object) -> None:
        for process, pipe in self._children:
            pipe.close()
            process.join(START_SECONDS)

    def play(self, load: Load) -> Played:
        """Play a load with all of them, beginning in a moment."""
        started = replace(load, start=time.monotonic() + LEAD_SECONDS)
        played = Played(started, RequestCounts())
        for _, pipe in self._children:
            pipe.send(started)
        for _, pipe in self._children:
            counts, cpu_share = pipe.recv()
            played.counts.merge(counts)
            played.cpu_shares.append(cpu_share)
        return played

    def acknowledged(self) -> dict[str, set[bytes]]:
        """The ids of all decisions and rewards that the service said were durable, by kind."""
        found: dict[str, set[bytes]] = {}
        for _, pipe in self._children:
            pipe.send(None)
        for _, pipe in self._children:
            for kind, packed in pipe.recv().items():
                ids = (bytes(packed[at : at + 16]) for at in range(0, len(packed), 16))
                found.setdefault(kind, set()).update(ids)
        return found


def generate(
    pipe: Connection, caller: Caller, workload: Workload, options: GeneratorOptions, share: Share
) -> None:
    """Be a generator until the pipe is closed; meant for a process of its own."""
    traffic = Traffic(workload, caller, _prefix(share), options.seed + share.index)
    uvloop.run(_generate(pipe, traffic, caller.url, options, share))


async def _generate(
    pipe: Connection, traffic: Traffic, url: str, options: GeneratorOptions, share: Share
) -> None:
    client = HttpClient(
        url, timeout_seconds=options.timeout_seconds, max_connections=options.max_connections
    )
    await client.open(WARM_CONNECTIONS)
    generator = Generator(client, traffic)
    loop = asyncio.get_running_loop()
    pipe.send("ready")
    while True:
        try:
            load = await loop.run_in_executor(None, pipe.recv)
        except EOFError:
            break
        pipe.send(await _played(generator, load, share) if load else traffic.acknowledged)
    await client.close()


async def _played(generator: Generator, load: Load, share: Share) -> tuple[RequestCounts, float]:
    wall, cpu = time.monotonic(), time.process_time()
    counts = await generator.play(load, share)
    return counts, (time.process_time() - cpu) / (time.monotonic() - wall)


def _prefix(share: Share) -> str:
    # Unlike that of any other run, for the service remembers request ids for good.
    return f"{time.time_ns():x}-{share.index}"
