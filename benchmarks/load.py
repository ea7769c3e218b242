"""A cheap closed-loop load generator: each of some connections asks, waits for the answer, asks again.

One process, one thread, plain sockets: `python -m benchmarks.load PORT FILE` prints JSON. The file holds
requests as `packed` writes them; with several, each is sent once and the load ends with the last, unless
`--again` sends them over and over.
"""

import argparse
import json
import re
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
CHUNK = 1 << 18


@dataclass(slots=True)
class Load:
    """What came of it; `statuses` counts the answers by status."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """How many answers came."""
        return sum(self.statuses.values())


class _Connection:
    """One caller: sends, waits for the whole answer, sends again."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._missing = -1  # bytes of the answer that are still to come; -1: its head is
        self._sent_at = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, request: bytes) -> None:
        """Send the request."""
        self._sent_at = time.perf_counter()
        self._socket.sendall(request)

    def take(self) -> bytes | None:
        """Read what is there; the status once the answer is whole."""
        piece = self._socket.recv(CHUNK)
        if not piece:
            raise ConnectionError("the server closed a connection")
        self._received = self._received + piece if self._received else piece
        if self._missing < 0:
            self._missing = _size(self._received)
        if self._missing < 0 or len(self._received) < self._missing:
            return None
        status = self._received[9:12]
        self._received, self._missing = b"", -1
        return status

    def waited_ms(self) -> float:
        """Since the request was sent."""
        return 1e3 * (time.perf_counter() - self._sent_at)


def _size(received: bytes) -> int:
    """Bytes of the whole answer; -1 before its head is complete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return -1
    found = LENGTH.search(received, 0, end)
    return end + 4 + (int(found[1]) if found else 0)


def loaded(port: int, source: Iterator[bytes], connections: int, seconds: float) -> Load:
    """Send requests for `seconds`, and at least until the first answer; later answers do not count."""
    load = Load()
    callers = {each.fileno(): each for each in (_Connection(port) for _ in range(connections))}
    poller = select.epoll()
    for number in callers:
        poller.register(number, select.EPOLLIN)
    started, used = time.perf_counter(), time.process_time()
    end = started + seconds
    busy = sum(_asked(caller, source) for caller in callers.values())
    while busy and (time.perf_counter() < end or not load.statuses):
        for number, _ in poller.poll(max(0.01, end - time.perf_counter())):
            caller = callers[number]
            if (status := caller.take()) is not None:
                name = status.decode()
                load.statuses[name] = load.statuses.get(name, 0) + 1
                load.latencies_ms.append(caller.waited_ms())
                busy -= not _asked(caller, source)
    load.seconds, load.cpu_seconds = time.perf_counter() - started, time.process_time() - used
    return load


def _asked(caller: _Connection, source: Iterator[bytes]) -> bool:
    request = next(source, None)
    if request is not None:
        caller.ask(request)
    return request is not None


def command(port: int, path: Path, connections: int, seconds: float) -> list[str]:
    """The command line of a load with the requests of a file."""
    options = ["--connections", str(connections), "--seconds", str(seconds)]
    return [sys.executable, "-m", "benchmarks.load", str(port), str(path), *options]


def packed(requests: Sequence[bytes]) -> bytes:
    """Requests in one file, each after its size."""
    return b"".join(len(each).to_bytes(4) + each for each in requests)


def unpacked(content: bytes) -> list[bytes]:
    """The requests that `packed` wrote."""
    found = []
    start = 0
    while start < len(content):
        end = start + 4 + int.from_bytes(content[start : start + 4])
        found.append(content[start + 4 : end])
        start = end
    return found


def http_request(path: str, body: bytes, media: str, accept: str | None = None) -> bytes:
    """A request as it goes over the wire."""
    accepts = f"Accept: {accept}\r\n" if accept else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {media}\r\n{accepts}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def main(arguments: Sequence[str] | None = None) -> None:
    """Load a server and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--again", action="store_true", help="send the requests over and over")
    options = parser.parse_args(arguments)
    requests = unpacked(options.requests.read_bytes())
    source = cycle(requests) if options.again or len(requests) == 1 else iter(requests)
    load = loaded(options.port, source, options.connections, options.seconds)
    json.dump(asdict(load), sys.stdout)


if __name__ == "__main__":
    main()
