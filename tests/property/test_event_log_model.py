"""The event log against a reference model of a few lines, on SQLite."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from service.errors import (
    ExperimentPaused,
    RequestConflict,
    RewardConflict,
    TargetRewardForbidden,
    UnknownDecision,
)
from service.records import Domain, Experiment, Status, phase_event
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.storage import (
    PATIENT,
    PATIENT_COMMIT,
    decision,
    migrated,
    outcome,
    reward,
    sqlite_url,
)

domains = st.sampled_from(Domain)
values = st.sampled_from([0.0, 0.5, 1.0])


class EventLogModel(RuleBasedStateMachine):
    """Appends at random and expects of each what the model says."""

    template: ClassVar[Path]
    decisions = Bundle("decisions")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="daband-model-"))
        shutil.copy(self.template, self.folder / "service.db")
        self.experiment = self.runner.run(self._open())
        self.log: list[tuple[str, str, float | None]] = []  # kind, key, reward
        self.requests: dict[str, tuple[str, Domain, str]] = {}
        self.domain_of: dict[str, Domain] = {}
        self.reward_of: dict[str, float] = {}
        self.is_open = self.is_paused = False

    async def _open(self) -> Experiment:
        self.database = await Database.open(sqlite_url(self.folder / "service.db"), PATIENT)
        self.event_log = EventLog(self.database, PATIENT_COMMIT)
        self.task = asyncio.create_task(self.event_log.run())
        self.experiments = Experiments(self.database)
        return await self.experiments.create("doses", "{}")

    async def _close(self) -> None:
        await self.event_log.close()
        await self.task
        await self.database.close()

    def teardown(self) -> None:
        self.runner.run(self._close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def append(self, *events: Any) -> Any:
        return self.runner.run(outcome(self.event_log.append(events)))

    @rule(
        target=decisions,
        request_id=st.sampled_from("abcdef"),
        body=st.sampled_from("xy"),
        domain=domains,
    )
    def decide(self, request_id: str, body: str, domain: Domain) -> str:
        event = decision(self.experiment, domain=domain, request_id=request_id, request_hash=body)
        got = self.append(event)
        known = self.requests.get(request_id)
        if known is not None and known[1:] != (domain, body):
            assert isinstance(got, RequestConflict)
            return known[0]
        if known is not None:
            assert (got[0].created, got[0].event.event_key) == (False, known[0])
            return known[0]
        if self.is_paused:
            assert isinstance(got, ExperimentPaused)
            return event.event_key
        assert got[0].created
        self.log.append(("decision", event.event_key, None))
        self.requests[request_id] = (event.event_key, domain, body)
        self.domain_of[event.event_key] = domain
        return event.event_key

    @rule(decision_id=decisions, value=values, copies=st.integers(1, 3))
    def give_reward(self, decision_id: str, value: float, copies: int) -> None:
        async def all_at_once() -> list[Any]:
            event = reward(self.experiment, decision_id, value)
            calls = (outcome(self.event_log.append([event])) for _ in range(copies))
            return await asyncio.gather(*calls)

        for got in self.runner.run(all_at_once()):
            self.expect_reward(decision_id, value, got)

    def expect_reward(self, decision_id: str, value: float, got: Any) -> None:
        domain = self.domain_of.get(decision_id)
        if domain is None:
            assert isinstance(got, UnknownDecision)
        elif domain is Domain.TARGET and not self.is_open:
            assert isinstance(got, TargetRewardForbidden)
        elif self.reward_of.get(decision_id, value) != value:
            assert isinstance(got, RewardConflict)
        elif decision_id in self.reward_of:
            assert not got[0].created
        else:
            assert got[0].created
            self.reward_of[decision_id] = value
            self.log.append(("reward", decision_id, value))

    @rule()
    def open_target(self) -> None:
        event = phase_event(self.experiment.experiment_id)
        assert self.append(event)[0].created is not self.is_open
        if not self.is_open:
            self.log.append(("phase", event.event_key, None))
        self.is_open = True

    @rule(is_paused=st.booleans())
    def pause_or_resume(self, is_paused: bool) -> None:
        status = Status.PAUSED if is_paused else Status.ACTIVE
        self.runner.run(self.experiments.set_status("doses", status))
        self.is_paused = is_paused

    @rule(good=st.booleans())
    def append_a_pair_of_which_one_is_refused(self, good: bool) -> None:
        pair = [decision(self.experiment), reward(self.experiment, "nobody")]
        refusal = ExperimentPaused if self.is_paused else UnknownDecision
        assert isinstance(self.append(*(pair if good else pair[::-1])), refusal | UnknownDecision)

    @invariant()
    def the_log_is_the_models(self) -> None:
        events = self.runner.run(
            self.event_log.read(self.experiment.experiment_id, after=0, limit=1000)
        )
        assert [(event.kind.value, event.event_key, event.reward) for event in events] == self.log
        assert [event.offset for event in events] == list(range(1, len(events) + 1))
        assert all(event.decision for event in events if event.kind == "reward")


def test_the_log_behaves_as_its_model(tmp_path_factory):
    EventLogModel.template = tmp_path_factory.mktemp("model") / "template.db"
    asyncio.run(migrated(sqlite_url(EventLogModel.template)))
    machine = EventLogModel.TestCase
    machine.settings = settings(
        max_examples=20,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine("runTest").runTest()
