"""Answers to target contexts as a table for people: CSV, with the ids of the rows."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from service.codec.spreadsheet_cells import spreadsheet_text
from service.deciding.target import TargetAnswer


class Scored(NamedTuple):
    """The answers to some contexts, with the ids of their rows if there are any."""

    answer: TargetAnswer
    ids: Sequence[str] | None = None


def spreadsheet(answer: TargetAnswer) -> Iterator[bytes]:
    """Decisions as CSV for a spreadsheet: arms that it would compute are marked as text."""
    arms = [spreadsheet_text(arm) for arm in answer.spec.arms]
    return _lines((Scored(part) for part in answer.parts()), arms)


def csv_lines(batches: Iterable[Scored]) -> Iterator[bytes]:
    """Decisions as CSV: a column for each field and one for the probability of each arm.

    If the unit of the rewards is known, `expected_reward` is the mean in it. Ids and arms are as they were
    given, byte for byte, so that other programs find them again.
    """
    return _lines(batches)


def _lines(batches: Iterable[Scored], shown_arms: Sequence[str] | None = None) -> Iterator[bytes]:
    has_header = False
    for answer, ids in batches:
        arms = answer.spec.arms if shown_arms is None else shown_arms
        table, unit = answer.table(), answer.spec.reward_range
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not has_header:
            has_header = True
            known = () if unit is None else ("expected_reward",)
            names = ("arm", *known, "mean", "bonus", "transfer_confidence", "abstained")
            writer.writerow(
                [*(() if ids is None else ("id",)), *names, *(f"p({arm})" for arm in arms)]
            )
        fields = [table[name].tolist() for name in ("mean", "bonus", "transfer_confidence")]
        chosen = [arms[place] if place >= 0 else "" for place in table["arm"].tolist()]
        expected = [] if unit is None else [[round(unit.in_unit(each), 6) for each in fields[0]]]
        abstained = [str(each).lower() for each in table["abstained"].tolist()]
        columns = [chosen, *expected, *fields, abstained, *table["probabilities"].T.tolist()]
        writer.writerows(zip(*(() if ids is None else (ids,)), *columns, strict=True))
        yield text.getvalue().encode()
