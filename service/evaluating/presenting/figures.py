"""The figures of a result: in the unit of the rewards, as text, and compared with the log."""

from collections.abc import Sequence
from typing import Any

from service.pages.lights import Light
from service.records import RewardRange


def in_unit(result: dict[str, Any]) -> dict[str, Any]:
    """The result with all values in the unit of the rewards, if one was declared."""
    if not result.get("reward_range"):
        return result
    unit = RewardRange(*result["reward_range"])
    candidates = [_candidate_in_unit(each, unit) for each in result["candidates"]]
    return {**result, "logged": _in_unit(result["logged"], unit), "candidates": candidates}


def _candidate_in_unit(candidate: dict[str, Any], unit: RewardRange) -> dict[str, Any]:
    estimates = {name: _in_unit(each, unit) for name, each in candidate["estimates"].items()}
    target = candidate.get("target")
    return {
        **_in_unit(candidate, unit),
        "estimates": estimates,
        "target": None if target is None else _in_unit(target, unit),
        "curve": [[point[0], *_values(point[1:], unit)] for point in candidate["curve"]],
    }


def _in_unit(found: dict[str, Any], unit: RewardRange) -> dict[str, Any]:
    """The same with the values, intervals and errors of this level in the unit."""
    changed = dict(found)
    for name in ("value", "checked"):
        if found.get(name) is not None:
            changed[name] = unit.in_unit(found[name])
    for name in ("interval", "bootstrap", "sequence"):
        if found.get(name) is not None:
            changed[name] = _values(found[name], unit)
    if found.get("standard_error") is not None:
        changed["standard_error"] = found["standard_error"] * unit.width
    return changed


def _values(values: Sequence[float | None], unit: RewardRange) -> list[float | None]:
    return [None if each is None else unit.in_unit(each) for each in values]


def number(value: float | None) -> str:
    """A formatted number, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"


def interval(ends: Sequence[float] | None) -> str:
    """A formatted interval, or a dash for None."""
    return "–" if ends is None else f"[{number(ends[0])}, {number(ends[1])}]"


def overlap_text(overlap: float | None) -> str:
    """The share of a policy's choices that the log could have made."""
    return "unknown" if overlap is None else f"{overlap:.1%}"


def against_log(candidate: dict[str, Any], logged: dict[str, Any]) -> tuple[Light, str]:
    """Whether the candidate's interval lies above, below or over that of the log."""
    ends, past = candidate["estimates"]["dr"]["interval"], logged["interval"]
    if ends is None or past is None:
        return Light.UNKNOWN, "cannot be judged"
    if ends[1] < past[0]:
        return Light.BAD, "earns less than the log"
    if ends[0] <= past[1]:
        return Light.CAUTION, "not clearly different from the log"
    if candidate["warnings"]:
        return Light.CAUTION, "earns more than the log, with a warning"
    return Light.GOOD, "earns more than the log"
