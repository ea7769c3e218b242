"""Evaluations in pieces give the bytes of an evaluation in one pass."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.ope import EvaluationOptions
from service.evaluating.candidates import parsed
from service.evaluating.experiment_log import decisions_of, header_of
from service.evaluating.file_log import FileOptions, evaluate_file
from service.evaluating.pieces.evaluation import DatabasePlace, evaluated_in_pieces
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from service.experiment_spec import ExperimentSpec
from service.formats.files import write_log
from service.records import EventKind, Experiment
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.support.engines import backwards
from tests.support.evaluations import played
from tests.support.storage import PATIENT

ROUNDS = 100
CANDIDATES = ("uniform", "arm:low", "system:linucb,alpha=0.3", "arm:high", "system:linucb")


@pytest.fixture
async def experiment(database: Database, event_log: EventLog) -> Experiment:
    return await played(Experiments(database), event_log, "lab", ROUNDS)


async def plan_of(database: Database, experiment: Experiment, **fields: Any) -> EvaluationPlan:
    wanted = tuple(map(parsed, fields.pop("candidates", CANDIDATES)))
    request = EvaluationRequest(experiment=experiment.name, candidates=wanted, **fields)
    stores = EvaluationStores(Experiments(database), EventLog(database), Snapshots(database))
    return await planned(stores, experiment, request)


@pytest.mark.parametrize("fields", [{"target": True, "seed": 5}])
async def test_pieces_give_the_bytes_of_one_pass(
    database: Database, database_url: str, experiment: Experiment, fields: dict[str, Any]
):
    plan = replace(await plan_of(database, experiment, **fields), range_size=90)
    whole = await evaluated_here(plan, EventLog(database))
    seen: list[tuple[int, int]] = []

    async def note(done: int, total: int) -> None:
        seen.append((done, total))

    place = DatabasePlace(database_url, PATIENT)
    parts = await evaluated_in_pieces(plan, place, backwards(), note)
    assert json.dumps(parts) == json.dumps(whole)
    assert len(parts["candidates"]) == len(CANDIDATES)
    assert parts["rounds"] == ROUNDS
    total = (
        3 * experiment.head_offset
    )  # once for the fixed candidates, once more for each that learns
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (total, total)
    assert len(seen) == len(plan.ranges()) + 2


async def test_rewards_after_the_last_offset_do_not_count(
    database: Database, event_log: EventLog, experiment: Experiment
):
    events = await event_log.read(experiment.experiment_id, 0, experiment.head_offset)
    rewarded = [each.offset for each in events if each.kind is EventKind.REWARD]
    end = rewarded[30] - 1  # its decision is before
    plan = await plan_of(database, replace(experiment, head_offset=end), candidates=("uniform",))
    found = await evaluated_here(plan, event_log)
    assert found["rounds"] == 30
    assert found["unrewarded"] > 0


async def test_a_piece_that_cannot_be_judged_ends_with_its_reason(
    database: Database, database_url: str, experiment: Experiment, tmp_path: Path
):
    path = tmp_path / "policy.json"
    path.write_text('{"format": "daband-policy-table", "rows": {"1": {"low": 1.0}}}')
    plan = await plan_of(database, experiment, candidates=(f"file:{path}",))
    place = DatabasePlace(database_url, PATIENT)
    with pytest.raises(ValueError, match="no row for a segment"):
        await evaluated_in_pieces(plan, place, backwards())


async def test_a_file_gives_the_same_bytes(
    event_log: EventLog, experiment: Experiment, tmp_path: Path
):
    pages = decisions_of(experiment, event_log, experiment.head_offset)
    decisions = [decision async for page in pages for _, decision in page]
    path = tmp_path / "log.jsonl"
    write_log(path, header_of(ExperimentSpec.of(experiment)), decisions)
    wanted = [parsed(each) for each in CANDIDATES]
    whole = evaluate_file(path, wanted, EvaluationOptions(), FileOptions())
    parts = evaluate_file(path, wanted, EvaluationOptions(), FileOptions(), backwards())
    assert json.dumps(parts) == json.dumps(whole)
