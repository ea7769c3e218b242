"""Which method would have earned most? Counterfactual replays of one log, each a piece of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.evaluating.candidates import changes_text
from service.evaluating.counterfactual import Counterfactual, replay_with
from service.evaluating.pieces.evaluation import DatabasePlace
from service.parallel.engine import Engine
from service.records import Experiment
from service.storage.database import Database
from service.storage.events.log import EventLog

AS_IT_IS = "as it is"


@dataclass(frozen=True, slots=True)
class ReplayPiece:
    """The whole log, for one changed configuration."""

    place: DatabasePlace
    experiment: Experiment
    wanted: Counterfactual


def replayed(piece: ReplayPiece) -> dict[str, Any]:
    """Replay the log with the changes."""
    return asyncio.run(_replayed(piece))


async def _replayed(piece: ReplayPiece) -> dict[str, Any]:
    async with Database.opened(*piece.place) as database:
        return await replay_with(piece.experiment, EventLog(database), piece.wanted)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The variants of an experiment to compare, the experiment as it is among them.

    All intervals hold together with the `confidence`: each alone has more (Bonferroni).
    """

    variants: Sequence[Mapping[str, Any]]
    correction: str = "rejection"
    confidence: float = 0.95

    def wanted(self) -> list[Counterfactual]:
        """One replay for each variant."""
        alone = 1.0 - (1.0 - self.confidence) / len(self.variants)
        return [Counterfactual(each, self.correction, alone) for each in self.variants]


def swept(
    experiment: Experiment,
    place: DatabasePlace,
    sweep: Sweep,
    engine: Engine | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The JSON-compatible result; `on_progress` gets the variants done and all of them."""
    pieces = [ReplayPiece(place, experiment, each) for each in sweep.wanted()]
    results = map(replayed, pieces) if engine is None else engine.in_order(replayed, pieces)
    found = []
    for each in results:
        found.append({"name": name_of(each["changes"]), **each})
        on_progress(len(found), len(pieces))
    return {
        "experiment": experiment.name,
        "confidence": sweep.confidence,
        "correction": sweep.correction,
        "logged": found[0]["logged"],
        "variants": found,
        "answer": answer(found),
    }


def name_of(changes: Mapping[str, Any]) -> str:
    """The variant as on the command line."""
    return changes_text(changes) or AS_IT_IS


def answer(variants: Sequence[Mapping[str, Any]]) -> str:
    """In one sentence, which variant would have earned most, if the log can tell."""
    known = {each["name"]: each["estimates"]["dr"]["interval"] for each in variants}
    without = [name for name, interval in known.items() if interval is None]
    if without:
        return f"The log cannot tell: it has too few rounds for {_listed(without)}."
    values = {each["name"]: each["value"] for each in variants}
    best = max(values, key=lambda name: values[name])
    rivals = [name for name in known if name != best and known[name][1] >= known[best][0]]
    if rivals:
        return f"The log cannot tell {_listed([best, *rivals])} apart: their intervals overlap."
    return f"{best} would have earned most."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
