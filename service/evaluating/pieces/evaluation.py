"""An evaluation in pieces that an engine runs: ranges of the log, and candidates that learn.

What candidates that do not learn would have chosen is known range by range. The sums over rounds are
added here in log order. A candidate that learns is one piece, a whole evaluation of it alone: reward
model and sums are the same, so its figures are too.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from model import Doubles
from model.ope import LoggedRounds
from service.evaluating.evaluation import Evaluation, Valued
from service.evaluating.plan import EvaluationPlan
from service.evaluating.running import Progress, evaluated_here, ignore
from service.parallel.engine import Engine, result_of
from service.storage.database import Database, DatabaseOptions
from service.storage.events.log import EventLog


class DatabasePlace(NamedTuple):
    """The database as another process opens it."""

    url: str
    options: DatabaseOptions


@dataclass(frozen=True, slots=True)
class RangePiece:
    """The rounds after one offset up to another."""

    place: DatabasePlace
    plan: EvaluationPlan
    after: int
    up_to: int


class JudgedRange(NamedTuple):
    """A range's rounds, with the probabilities of the candidates by name, and decisions left out."""

    batches: Sequence[tuple[LoggedRounds, Mapping[str, Doubles]]]
    unrewarded: int


def judged_range(piece: RangePiece) -> JudgedRange:
    """Read a range and ask the candidates for each of its rounds."""
    return asyncio.run(_judged(piece))


async def _judged(piece: RangePiece) -> JudgedRange:
    plan, found = piece.plan, []
    batches = plan.batches()
    made = plan.made(batches)
    async with Database.opened(*piece.place) as database:
        log = EventLog(database)
        async for _, rounds in plan.rounds(log, piece.after, piece.up_to, batches):
            if rounds is not None:
                asked = {name: each.candidate.probabilities(rounds) for name, each in made.items()}
                found.append((rounds, asked))
    return JudgedRange(found, batches.passed_count)


def valued_alone(place: DatabasePlace, plan: EvaluationPlan) -> Valued:
    """Evaluate the only candidate of a plan, which needs the whole log."""
    return asyncio.run(_alone(place, plan))


async def _alone(place: DatabasePlace, plan: EvaluationPlan) -> Valued:
    async with Database.opened(*place) as database:
        found = await evaluated_here(plan, EventLog(database))
    (candidate,) = found["candidates"]
    return dict(candidate)


async def evaluated_in_pieces(
    plan: EvaluationPlan, place: DatabasePlace, engine: Engine, progress: Progress = ignore
) -> dict[str, Any]:
    """The same result as in one process, bit for bit.

    Progress counts events: the log's once for the fixed candidates, and once more for each that learns.
    """
    total = plan.experiment.head_offset * (1 + len(plan.learning))
    # First what takes longest.
    learning = {
        each.name: engine.submit(valued_alone, place, plan.of((each,))) for each in plan.learning
    }
    fixed = plan.of(plan.fixed)
    evaluation, unrewarded = await asyncio.to_thread(fixed.evaluation, fixed.batches()), 0
    pieces = [RangePiece(place, fixed, *ends) for ends in fixed.ranges()]
    judged = zip(pieces, engine.in_order(judged_range, pieces), strict=True)
    while (each := await asyncio.to_thread(next, judged, None)) is not None:
        piece, found = each
        await asyncio.to_thread(_add, evaluation, found)
        unrewarded += found.unrewarded
        await progress(piece.up_to, total)
    learned: dict[str, Valued] = {}
    for name, future in learning.items():
        learned[name] = await asyncio.to_thread(result_of, future)
        await progress(plan.experiment.head_offset * (1 + len(learned)), total)
    return plan.result(await asyncio.to_thread(evaluation.result, learned), unrewarded)


def _add(evaluation: Evaluation, found: JudgedRange) -> None:
    for rounds, policies in found.batches:
        evaluation.add(rounds, policies)
