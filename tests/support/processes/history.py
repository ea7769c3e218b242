"""Clients that never give up and remember all they did, and what must then be true of the log."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from loadtest.http_client import DISCONNECTED, TIMEOUT, Answer, HttpClient
from service.learning.replay import replay
from service.records import EventKind, Experiment, StoredEvent
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband
from tests.support.storage import PATIENT
from tests.support.waiting import PATIENCE_SECONDS, eventually

NAME = "rounds"
# Small, so that encoders follow each other quickly.
EXPERIMENT: dict[str, Any] = {
    "name": NAME,
    "arms": ["low", "mid", "high"],
    "context": {"kind": "shared", "shape": [4]},
    "method": "daband",
    "seed": 7,
    "config": {
        "episode_length": 16,
        "latent_size": 4,
        "hidden_sizes": [8],
        "steps_per_episode": 2,
        "batch_size": 8,
        "rebuild_window": 2000,
        "gate_margin": 1.0,
    },
}
EVENTS_A_ROUND = 3  # a decision for each domain, and the source's reward
DUPLICATE_SHARE = 0.1
CLIENTS = 24
RETRY_SECONDS = 0.1


@dataclass
class History:
    """All that was asked and all that was answered, by request id and decision id."""

    attempts: Counter[str] = field(default_factory=Counter)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    reported: dict[str, float] = field(default_factory=dict)
    rewarded: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)

    def decided_since(self, version: int) -> int:
        """How many decisions were made under this version of the policy or a later one."""
        return sum(2 for each in self.decided.values() if each["policy_version"] >= version)

    def note_decision(self, request_id: str, body: dict[str, Any]) -> None:
        """The same request must always get the same decisions."""
        assert self.decided.setdefault(request_id, body) == body

    def note_reward(self, decision_id: str, body: dict[str, Any]) -> None:
        """The same reward must always be at the same place of the log, and be new only once."""
        assert self.rewarded.setdefault(decision_id, body["offset"]) == body["offset"]


class _Reply(NamedTuple):
    """What a server answered."""

    status: int
    content: bytes

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.content))


class Clients:
    """Plays rounds against any of the servers; each call is retried until it is answered.

    The load tests' client is used: httpx would cost more than what the servers do.
    """

    def __init__(self, urls: Sequence[str], history: History, prefix: str = "r") -> None:
        self.history = history
        self._prefix = prefix
        self._servers = [
            HttpClient(url, timeout_seconds=PATIENCE_SECONDS, max_connections=CLIENTS)
            for url in urls
        ]
        self._next_server = itertools.cycle(self._servers)
        self._numbers = itertools.count()
        self._random = random.Random(7)
        self._deadline = time.monotonic() + 10 * PATIENCE_SECONDS

    async def __aenter__(self) -> "Clients":
        for server in self._servers:
            await server.open(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            await server.close()

    async def create_experiment(
        self, method: str = EXPERIMENT["method"], /, **changes: Any
    ) -> None:
        """Create the experiment, unless an earlier attempt has done so."""
        config = EXPERIMENT["config"] | changes
        answer = await self._sent(
            "/experiments", {**EXPERIMENT, "method": method, "config": config}
        )
        assert answer.status in (201, 409), answer

    async def play(self, rounds: int, clients: int = 4) -> None:
        """Play `rounds` rounds with concurrent clients."""
        left = iter(range(rounds))

        async def client() -> None:
            for _ in left:
                await self.round()

        await asyncio.gather(*(client() for _ in range(clients)))

    async def offer(self, rounds_a_second: float, until: asyncio.Event) -> None:
        """Rounds at a fixed rate at most.

        No more than two rounds a client wait to be played: on a slow machine the rate falls, and the
        end does not wait for a long queue.
        """
        due: asyncio.Queue[None] = asyncio.Queue(2 * CLIENTS)
        began, count = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._play_what_is_due(due)) for _ in range(CLIENTS)]
            while not until.is_set():
                while not due.full() and count < (time.monotonic() - began) * rounds_a_second:
                    due.put_nowait(None)
                    count += 1
                await asyncio.sleep(0.02)
            await due.join()
            for client in clients:
                client.cancel()

    async def _play_what_is_due(self, due: "asyncio.Queue[None]") -> None:
        while True:
            await due.get()
            await self.round()
            due.task_done()

    async def round(self) -> None:
        """Both contexts go out, the source's reward comes back; some things are sent twice."""
        request_id = f"{self._prefix}-{next(self._numbers)}"
        body = _round(request_id)
        self.history.asked[request_id] = body
        decision = await self._decide(request_id, body)
        decision_id = decision["source"]["decision_id"]
        reward = float(decision["source"]["arm"] == "mid")
        self.history.reported[decision_id] = reward
        received = {"decision_id": decision_id, "reward": reward}
        for _ in range(self._times()):
            answer = await self._sent("/reward", received)
            assert answer.status in (200, 201), answer
            self.history.note_reward(decision_id, answer.json())

    async def _decide(self, request_id: str, body: dict[str, Any]) -> dict[str, Any]:
        for _ in range(self._times()):
            answer = await self._sent("/select", body)
            assert answer.status == 200, answer
            self.history.note_decision(request_id, answer.json())
        return self.history.decided[request_id]

    def _times(self) -> int:
        return 2 if self._random.random() < DUPLICATE_SHARE else 1

    async def _sent(self, path: str, body: dict[str, Any]) -> _Reply:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        while time.monotonic() < self._deadline:
            self.history.attempts[path] += 1
            answer = await _answered(next(self._next_server), request)
            if answer.outcome not in (TIMEOUT, DISCONNECTED):
                reply = _Reply(int(answer.outcome), answer.body)
                self.history.statuses[reply.status] += 1
                if reply.status < 500:
                    return reply
                assert reply.status == 503, reply
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("nobody answers")


async def _answered(server: HttpClient, request: bytes) -> Answer:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def take(found: Answer) -> None:
        if not answer.done():  # the caller may have been cancelled
            answer.set_result(found)

    server.send(request, take, lambda: None)
    return await answer


def _round(request_id: str) -> dict[str, Any]:
    rng = np.random.default_rng(list(request_id.encode()))
    source, target = rng.standard_normal((2, 4)).round(3).tolist()
    sides = {"source": {"context": source}, "target": {"context": target}}
    return {"experiment": NAME, "request_id": request_id, **sides}


async def state(url: str) -> dict[str, Any]:
    """Where the experiment stands, by GET /experiments/NAME/state."""
    async with client_of(url) as client:
        answer = await client.get(f"/experiments/{NAME}/state")
    return dict(answer.json()) if answer.is_success else {}


async def idle_state(url: str, *involved: Daband) -> dict[str, Any]:
    """The state once all of the log is folded and published and no encoder trains."""
    found: dict[str, Any] = {}

    async def is_idle() -> bool:
        found.update(await state(url))
        return found.get("lag") == 0 and found.get("is_training") is False

    await eventually(is_idle, *involved)
    return found


async def check(history: History, database_url: str) -> list[StoredEvent]:
    """Check all invariants when the service is idle; returns the log."""
    async with Database.opened(database_url, PATIENT) as database:
        experiment = await Experiments(database).get(NAME)
        events = await read_log(database, experiment)
        check_order(events)
        check_decisions(history, events)
        check_rewards(history, events)
        await check_state(database, experiment, events)
        return events


async def read_log(database: Database, experiment: Experiment) -> list[StoredEvent]:
    log, events = EventLog(database), list[StoredEvent]()
    while page := await log.read(experiment.experiment_id, len(events), 5000):
        events += page
    assert len(events) == experiment.head_offset
    return events


def check_order(events: list[StoredEvent]) -> None:
    """Offsets have no gap; no id is there twice."""
    assert all(event.offset == number for number, event in enumerate(events, start=1))
    assert len({(event.kind, event.event_key) for event in events}) == len(events)


def check_decisions(history: History, events: list[StoredEvent]) -> None:
    """The log holds every acknowledged decision as it was answered, and no others."""
    logged = {
        (event.request_id, str(event.domain)): (event.event_key, event.arm, event.policy_version)
        for event in events
        if event.kind is EventKind.DECISION
    }
    answered = {
        (request_id, side): (body[side]["decision_id"], body[side]["arm"], body["policy_version"])
        for request_id, body in history.decided.items()
        for side in ("source", "target")
    }
    assert not sorted(answered.items() - logged.items())
    assert not {request_id for request_id, _ in logged} - history.asked.keys()
    assert len({decision_id for decision_id, *_ in logged.values()}) == len(logged)


def check_rewards(history: History, events: list[StoredEvent]) -> None:
    """The log holds every acknowledged reward at its offset, and no others."""
    rewards = [event for event in events if event.kind is EventKind.REWARD]
    offsets = {event.event_key: event.offset for event in rewards}
    assert not sorted(history.rewarded.items() - offsets.items())
    values = {event.event_key: event.reward for event in rewards}
    assert not values.items() - history.reported.items()


async def check_state(
    database: Database, experiment: Experiment, events: list[StoredEvent]
) -> None:
    """All of the log is in the newest snapshot, each event once, as in a fold from zero."""
    snapshots = Snapshots(database)
    newest = (await snapshots.list(experiment.experiment_id, limit=1))[0]
    kinds = Counter(event.kind for event in events)
    assert newest.offset == len(events)
    assert newest.note["counts"]["folded_rewards"] == kinds[EventKind.REWARD]
    assert newest.note["counts"]["decisions"] == kinds[EventKind.DECISION]
    report = await replay(experiment, EventLog(database), snapshots, Candidates(database))
    assert report.offset == len(events)
    assert report.is_equal
