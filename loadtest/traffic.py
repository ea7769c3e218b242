"""What is sent: selects of one experiment, and rewards for decisions that were answered."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from loadtest.http_client import Answer

SELECT, REWARD = "select", "reward"
CONTEXTS = 256  # made ahead and sent in turn
MAX_UNREWARDED = 10_000
GOOD = frozenset({"200", "201"})


class Body(StrEnum):
    """How contexts are sent."""

    JSON = "json"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Workload:
    """One experiment and what its callers do."""

    experiment: str = "load"
    arms: int = 10
    size: int = 32
    body: Body = Body.JSON
    selects_a_reward: int = 0  # none: no rewards at all
    has_target: bool = False  # whether a select asks for the target, too
    method: str = "daband"

    def creation(self, config: dict[str, Any]) -> dict[str, Any]:
        """The body of POST /experiments."""
        return {
            "name": self.experiment,
            "arms": [f"arm-{number}" for number in range(self.arms)],
            "context": {"kind": "shared", "shape": [self.size]},
            "method": self.method,
            "seed": 7,
            "config": config,
        }


class _Decision(msgspec.Struct):
    decision_id: str
    arm: str


class _Selected(msgspec.Struct):
    source: _Decision
    target: _Decision | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it goes over the wire, and what is needed to understand its answer."""

    kind: str
    content: bytes
    decision_id: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The server of the requests, and the caller's headers."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def head(self) -> str:
        """The lines that all requests have in common."""
        named = {"Host": urlsplit(self.url).netloc, **self.headers}
        return "".join(f"{name}: {value}\r\n" for name, value in named.items())


class Traffic:
    """One generator's requests, with ids that no other generator uses."""

    def __init__(self, workload: Workload, caller: Caller, prefix: str, seed: int) -> None:
        self._workload = workload
        self._head = caller.head()
        self._prefix = prefix
        self._number = 0
        self._unrewarded: deque[tuple[str, str]] = deque(maxlen=MAX_UNREWARDED)
        self._contexts = self._endless(np.random.default_rng([seed, 1]))
        self._selected = msgspec.json.Decoder(_Selected)
        self.acknowledged: dict[str, bytearray] = {SELECT: bytearray(), REWARD: bytearray()}

    def next(self) -> Request:
        """The next request; a reward where one is due and a decision is there to reward."""
        self._number += 1
        share = self._workload.selects_a_reward
        if share and self._number % (share + 1) == 0 and self._unrewarded:
            return self._reward(*self._unrewarded.popleft())
        return self._select()

    def understand(self, request: Request, answer: Answer) -> None:
        """Remember what was acknowledged, and what can be rewarded."""
        if answer.outcome not in GOOD:
            return
        if request.kind == REWARD:
            self.acknowledged[REWARD] += _packed(request.decision_id)
            return
        selected = self._selected.decode(answer.body)
        for decision in (selected.source, selected.target):
            if decision is not None:
                self.acknowledged[SELECT] += _packed(decision.decision_id)
        if self._workload.selects_a_reward:
            self._unrewarded.append((selected.source.decision_id, selected.source.arm))

    def _select(self) -> Request:
        request_id = f"{self._prefix}-{self._number}"
        if self._workload.body is Body.BINARY:
            path = f"/select?experiment={self._workload.experiment}&request_id={request_id}"
            content, media = next(self._contexts), "application/octet-stream"
        else:
            head = f'{{"experiment":"{self._workload.experiment}","request_id":"{request_id}",'
            path, media = "/select", "application/json"
            content = head.encode() + next(self._contexts)
        return Request(SELECT, self._wrapped(path, media, content))

    def _reward(self, decision_id: str, arm: str) -> Request:
        # Half of the arms pay, so there is something to learn.
        value = 1.0 if arm[-1] in "02468" else 0.0
        content = f'{{"decision_id":"{decision_id}","reward":{value}}}'.encode()
        request = self._wrapped("/reward", "application/json", content)
        return Request(REWARD, request, decision_id)

    def _wrapped(self, path: str, media: str, content: bytes) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: {media}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def _endless(self, rng: np.random.Generator) -> Iterator[bytes]:
        made = [self._context(rng) for _ in range(CONTEXTS)]
        while True:
            yield from made

    def _context(self, rng: np.random.Generator) -> bytes:
        source, target = rng.standard_normal((2, self._workload.size)).astype(np.float32)
        if self._workload.body is Body.BINARY:
            return bytes(source.tobytes())
        sides = {"source": {"context": source.round(4).tolist()}}
        if self._workload.has_target:
            sides["target"] = {"context": target.round(4).tolist()}
        return msgspec.json.encode(sides)[1:]  # the rest of an object that _select begins


def _packed(decision_id: str) -> bytes:
    return bytes.fromhex(decision_id.replace("-", ""))
