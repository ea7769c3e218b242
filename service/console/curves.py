"""Curves of an experiment: their data for the script that draws them."""

import json
from collections.abc import Sequence
from typing import Any

from service.console.figures import MARKS, Facts

EVENT = "event of the log"


def curve(facts: Facts) -> str:
    """Mean reward along the source's log, and regret where it is known."""
    points = facts.points
    spread = facts.spec.unit.width
    known = [each["regret"] for each in points if each["regret"] is not None]
    lines = [_line("Mean reward", facts.means)]
    if known:
        regrets = [spread * each for each in known]
        lines.append(_line("Regret of a round", regrets, "series-2", dashed=True))
    marks = [
        {"offset": each["offset"], "kind": MARKS[each["what"]].value}
        for each in facts.transfer["gate"]
        if each["what"] in MARKS
    ]
    return _drawn(EVENT, [each["offset"] for each in points], lines, facts.spec.unit, marks)


def expected_curve(facts: Facts) -> str | None:
    """The expected reward in the target with its lower bound; None for fewer than two encoders."""
    judged = [each for each in facts.transfer["versions"] if each["expected"]]
    if len(judged) < 2 or facts.expected is None:
        return None
    unit = facts.spec.unit
    lines = [
        _line("Expected reward", [unit.in_unit(each["expected"]["reward"]) for each in judged]),
        _line(
            "Lower bound",
            [unit.in_unit(each["expected"]["lower"]) for each in judged],
            "series-3",
            dashed=True,
        ),
    ]
    return _drawn(EVENT, [each["offset"] for each in judged], lines, unit)


def target_regret_curve(facts: Facts) -> str | None:
    """The regret in the target since it was opened; None without rewards."""
    found = facts.transfer["target_regret"]["curve"]
    if not found:
        return None
    spread = facts.spec.unit.width
    totals = [spread * total for _, total in found]
    ends = min(0.0, *totals), max(1.0, *totals)
    return _drawn(
        "target rewards", [count for count, _ in found], [_line("Regret", totals, "series-2")], ends
    )


def _line(
    label: str, values: Sequence[float], colour: str = "series-1", dashed: bool = False
) -> dict[str, Any]:
    """A line of a curve; `colour` is one of the palette."""
    rounded = [round(each, 4) for each in values]
    return {"label": label, "values": rounded, "colour": colour, "dashed": dashed}


def _drawn(
    title: str,
    places: Sequence[int],
    lines: Sequence[dict[str, Any]],
    ends: tuple[float, float],
    marks: Sequence[dict[str, Any]] = (),
) -> str:
    return json.dumps(
        {
            "title": title,
            "places": places,
            "lines": lines,
            "marks": marks,
            "low": ends[0],
            "high": ends[1],
        }
    )
