"""Callers of an experiment with relaxed durability that record their decisions."""

from typing import Any

import msgspec

from loadtest.http_client import Answer, HttpClient
from tests.support.waiting import eventually

EXPERIMENT = "relaxed"
CREATION: dict[str, Any] = {
    "name": EXPERIMENT,
    "arms": ["low", "mid", "high"],
    "context": {"kind": "shared", "shape": [4]},
    "method": "linucb",
    "durability": "relaxed",
}
BODY = b'{"experiment":"relaxed","source":{"context":[0.1,-0.2,0.3,0.4]}}'


class _Decision(msgspec.Struct):
    decision_id: str


class _Selected(msgspec.Struct):
    source: _Decision


class RelaxedCallers:
    """Closed-loop callers: each sends again after its answer and ends with its connection."""

    def __init__(self, url: str, callers: int = 32, timeout_seconds: float = 60.0) -> None:
        self._client = HttpClient(url, timeout_seconds=timeout_seconds, max_connections=callers)
        self._callers = callers
        self._decoder = msgspec.json.Decoder(_Selected)
        self._request = b"POST /select HTTP/1.1\r\nHost: load\r\n" + (
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
        )
        self._is_over = False
        self._busy = 0
        self.answered: set[bytes] = set()  # ids of decisions
        self.refused = 0

    async def __aenter__(self) -> "RelaxedCallers":
        await self._client.open(self._callers)
        for _ in range(self._callers):
            self._ask()
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._is_over = True
        await self._client.close()

    async def answered_more(self, count: int) -> None:
        """Run until `count` more requests were answered."""
        goal = len(self.answered) + count
        await eventually(lambda: len(self.answered) >= goal)

    async def stop(self) -> None:
        """Ask nothing more, and wait for the answers that are due."""
        self._is_over = True
        await eventually(lambda: self._busy == 0)

    def _ask(self) -> None:
        self._busy += 1
        self._client.send(self._request, self._take, lambda: None)

    def _take(self, answer: Answer) -> None:
        self._busy -= 1
        if answer.outcome == "200":
            decided = self._decoder.decode(answer.body).source
            self.answered.add(bytes.fromhex(decided.decision_id.replace("-", "")))
        elif answer.outcome == "503":
            self.refused += 1
        else:
            return
        if not self._is_over:
            self._ask()
