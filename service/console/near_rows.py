"""The nearest source rounds of a decision, as rows of a table."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from service.codec.plain_contexts import plain_context
from service.codec.target_contexts import TargetRows
from service.deciding.policies import Served
from service.experiment_spec import ExperimentSpec
from service.reporting.figures import value_text
from service.routes.browsing.nearest import nearest_answer
from service.services import Services

MOST_CONTEXTS = 20  # whose nearest rounds are shown
COUNT = 3  # rounds of each
MOST_COLUMNS = 12
MOST_NUMBERS = 8  # of a vector


async def near_tables(
    services: Services, served: Served, groups: list[TargetRows]
) -> dict[str, Any]:
    """The API's answer for the first contexts, with the cells of each context.

    `own` are the cells of the context that was asked for, if it is the same for all arms.
    """
    spec, shown = served.spec, _first(groups)
    found = await nearest_answer(services, served, shown, COUNT)
    own = [] if spec.is_per_arm else list(shown[0].contexts)
    names = _names(spec)
    return {
        "sampled": found["sampled"],
        "names": names[:MOST_COLUMNS],
        "more_names": max(0, len(names) - MOST_COLUMNS),
        "tables": [
            {
                "own": _cells(spec, plain_context(spec, own[place])) if own else [],
                "rows": [{**row, "cells": _cells(spec, row["context"])} for row in each["nearest"]],
            }
            for place, each in enumerate(found["contexts"])
        ],
    }


def _first(groups: Sequence[TargetRows]) -> list[TargetRows]:
    found = []
    for each in groups:
        count = sum(row < MOST_CONTEXTS for row in each.rows)
        if count:
            found.append(TargetRows(each.arms, each.contexts[:count], each.rows[:count]))
    return found


def _names(spec: ExperimentSpec) -> list[str]:
    if spec.table is not None:
        return [each.name for each in spec.table.columns]
    return ["Image" if spec.image else "Context"]


def _cells(spec: ExperimentSpec, context: Any) -> list[str]:
    """The text of each column; of an image its file as an address, of a vector its first numbers."""
    if spec.image is not None:
        return [f"data:image/png;base64,{context['image']}"]
    if spec.table is not None:
        shown = islice(context.values(), MOST_COLUMNS)
        return ["–" if each is None else value_text(each) for each in shown]
    return [_vector(context)]


def _vector(context: list[Any]) -> str:
    numbers = np.ravel(context)
    rest = numbers.size - MOST_NUMBERS
    shown = ", ".join(f"{each:.3g}" for each in numbers[:MOST_NUMBERS].tolist())
    return f"{shown}, … {rest} more" if rest > 0 else shown
