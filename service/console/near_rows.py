"""The nearest source rounds of a decision, as rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from service.codec.plain_contexts import plain_context
from service.codec.target_contexts import TargetRows
from service.deciding.policies import Served
from service.experiment_spec import ExperimentSpec
from service.reporting.figures import number
from service.routes.browsing.nearest import nearest_answer
from service.services import Services

MOST_CONTEXTS = 20  # whose nearest rounds are shown
COUNT = 3  # rounds of each
MOST_COLUMNS = 12
MOST_NUMBERS = 8  # of a vector


@dataclass(frozen=True, slots=True)
class NearRow:
    """A source round: where it is in the log, what was done and earned, and its context."""

    decision_id: str
    offset: int
    arm: str
    reward: str
    distance: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class NearTable:
    """The rounds of one context; `own` are its own cells, where it has one for all arms."""

    names: Sequence[str]
    more_names: int
    is_image: bool
    own: Sequence[str]
    rows: Sequence[NearRow]


@dataclass(frozen=True, slots=True)
class NearTables:
    """The tables of the first contexts, and how many rounds were looked at."""

    sampled: int
    tables: Sequence[NearTable]


async def near_tables(services: Services, served: Served, groups: list[TargetRows]) -> NearTables:
    """What the page shows of the API's answer for the first contexts."""
    shown = _first(groups)
    found = await nearest_answer(services, served, shown, COUNT)
    own = [] if served.spec.is_per_arm else list(shown[0].contexts)
    tables = [
        _table(
            served.spec, each["nearest"], plain_context(served.spec, own[place]) if own else None
        )
        for place, each in enumerate(found["contexts"])
    ]
    return NearTables(found["sampled"], tables)


def _first(groups: Sequence[TargetRows]) -> list[TargetRows]:
    found = []
    for each in groups:
        count = sum(row < MOST_CONTEXTS for row in each.rows)
        if count:
            found.append(TargetRows(each.arms, each.contexts[:count], each.rows[:count]))
    return found


def _table(spec: ExperimentSpec, rounds: Sequence[Mapping[str, Any]], own: Any) -> NearTable:
    names = ["Image" if spec.image else "Context"]
    if spec.table is not None:
        names = [each.name for each in spec.table.columns]
    rows = [
        NearRow(
            each["decision_id"],
            each["offset"],
            each["arm"],
            number(spec.unit.in_unit(each["reward"])),
            f"{each['distance']:.2f}",
            _cells(spec, each["context"]),
        )
        for each in rounds
    ]
    more = max(0, len(names) - MOST_COLUMNS)
    return NearTable(
        names[:MOST_COLUMNS],
        more,
        spec.image is not None,
        [] if own is None else _cells(spec, own),
        rows,
    )


def _cells(spec: ExperimentSpec, context: Any) -> list[str]:
    """The text of each column; of an image its file as an address, of a vector its first numbers."""
    if spec.image is not None:
        return [f"data:image/png;base64,{context['image']}"]
    if spec.table is not None:
        return [_text(each) for each in islice(context.values(), MOST_COLUMNS)]
    return [_vector(context)]


def _vector(context: list[Any]) -> str:
    numbers = np.ravel(context)
    rest = numbers.size - MOST_NUMBERS
    shown = ", ".join(f"{each:.3g}" for each in numbers[:MOST_NUMBERS].tolist())
    return f"{shown}, … {rest} more" if rest > 0 else shown


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)
