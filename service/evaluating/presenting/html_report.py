"""An evaluation as one self-contained HTML page, with the answer first."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from model.ope import LEAST_EFFECTIVE
from service.evaluating.presenting import plots
from service.evaluating.presenting.figures import (
    against_log,
    in_unit,
    interval,
    number,
    overlap_text,
)
from service.pages.lights import Light
from service.pages.plot_style import HEIGHT, svg
from service.pages.rendering import Headline, Plot, Table, Tile, rendered
from service.records import UNIT, RewardRange

ROW_HEIGHT = 0.5  # inches, of a candidate in the plot of intervals
ESTIMATORS = {
    "dr": "doubly robust: the value of this page",
    "switch_dr": "doubly robust without the largest weights",
    "snips": "inverse propensities, self-normalised",
    "ips": "inverse propensities",
    "replay": "only rounds where the log chose alike",
    "dm": "by the reward model alone; its error has no bound",
}
NEXT = {
    Light.GOOD: "try it on new rounds. Intervals hold for each candidate alone: the best of many is flattered.",
    Light.CAUTION: "collect more rounds, or let the log explore more (a higher ε), and evaluate again.",
    Light.BAD: "keep the policy that wrote the log.",
    Light.UNKNOWN: "the log hardly holds rounds with the arms that the candidates choose: explore more.",
}


def page(result: dict[str, Any], made_at: datetime) -> str:
    """The whole page; `made_at` is when the log was evaluated."""
    name = str(result.get("experiment") or result.get("log") or "log")
    return rendered("evaluation.html", name=name, **shown_values(result, made_at))


def shown_values(result: dict[str, Any], made_at: datetime) -> dict[str, Any]:
    """What `evaluation_result.html` shows of a result."""
    shown = in_unit(result)
    logged = shown["logged"]
    unit = RewardRange(*(result.get("reward_range") or UNIT))
    return {
        "facts": _facts(result, unit, made_at),
        "answer": _answer(shown["candidates"], logged),
        "tiles": _tiles(shown),
        "values": _values_plot(shown["candidates"], logged),
        "candidates": _table(shown["candidates"], logged),
        "caution": Light.CAUTION,
        "least": f"{LEAST_EFFECTIVE:.0f}",
        "has_target": any(each.get("target") is not None for each in shown["candidates"]),
        "sections": [
            _section(each, place, logged, unit) for place, each in enumerate(shown["candidates"])
        ],
    }


def _facts(result: dict[str, Any], unit: RewardRange, made_at: datetime) -> str:
    facts = [
        f"Made on {made_at:%Y-%m-%d %H:%M} UTC from {result['rounds']:,} rounds of the {result['domain']} domain",
        f"rewards lie between {unit.low:g} and {unit.high:g}",
        f"intervals have {result['confidence']:.0%} confidence",
    ]
    if result.get("unrewarded"):
        facts.append(f"{result['unrewarded']:,} decisions without a reward were left out")
    if result.get("bad_lines"):
        facts.append(f"{result['bad_lines']:,} bad lines were skipped")
    return f"{'; '.join(facts)}."


def _answer(candidates: Sequence[dict[str, Any]], logged: dict[str, Any]) -> Headline:
    meaning = "The values are estimated from the log alone, without playing the candidates."
    for each in candidates:
        light, text = against_log(each, logged)
        if light is not Light.UNKNOWN:
            word = f"The best candidate, {each['name']}: {text}"
            return Headline(light, word, meaning, NEXT[light], each["warnings"])
    word = "No candidate can be judged"
    return Headline(Light.UNKNOWN, word, meaning, NEXT[Light.UNKNOWN])


def _tiles(shown: dict[str, Any]) -> list[Tile]:
    logged = shown["logged"]
    past = f"{interval(logged['interval'])}: what was earned by the policies that wrote the log."
    found = [Tile("Log", number(logged["value"]), past)]
    for each in shown["candidates"][:3]:
        light, text = against_log(each, logged)
        ends = interval(each["estimates"]["dr"]["interval"])
        found.append(Tile(each["name"], number(each["value"]), f"{ends}: {text}.", light))
    return found


def _values_plot(candidates: Sequence[dict[str, Any]], logged: dict[str, Any]) -> Plot:
    title = "Value and interval of each candidate"
    meaning = (
        "A point is the estimated mean reward, a line its interval. A line that does not reach the grey "
        "band, which is the log's interval, is clearly different from the log."
    )
    is_empty = logged["value"] is None and all(each["value"] is None for each in candidates)
    height = max(HEIGHT * 0.7, 0.7 + ROW_HEIGHT * len(candidates))
    draw = plots.intervals(candidates, logged)
    return Plot("values", title, meaning, None if is_empty else svg("values", title, draw, height))


def _table(candidates: Sequence[dict[str, Any]], logged: dict[str, Any]) -> Table:
    titles = ("candidate", "value", "interval", "light", "against the log", "effective rounds", "overlap", "largest weight")  # fmt: skip
    rows = []
    for each in candidates:
        support = each["support"]
        rows.append(
            (
                each["name"],
                number(each["value"]),
                interval(each["estimates"]["dr"]["interval"]),
                *against_log(each, logged),
                f"{support['effective_rounds']:,.0f}",
                overlap_text(support["overlap"]),
                f"{support['max_weight']:.1f}",
            )
        )
    return Table(titles, rows, {1, 2, 5, 6, 7})


def _section(
    candidate: dict[str, Any], place: int, logged: dict[str, Any], unit: RewardRange
) -> dict[str, Any]:
    """The details of a candidate."""
    light, text = against_log(candidate, logged)
    name = f"growth-{place}"
    title = f"{candidate['name']} as the log grew"
    meaning = (
        "The line is the value after so many rounds. The band is the confidence sequence, which holds at "
        "every moment; all other intervals hold for a single look."
    )
    drawing = None
    if candidate["curve"]:
        drawing = svg(name, title, plots.growth(candidate, place, logged["value"], unit))
    beside = (
        f"Bootstrap of the doubly robust value {interval(candidate['bootstrap'])}, confidence sequence"
        f" {interval(candidate['sequence'])}."
    )
    return {
        "name": candidate["name"],
        "light": light,
        "comparison": text,
        "warnings": candidate["warnings"],
        "plot": Plot(name, "As the log grew", meaning, drawing),
        "estimates": _estimates(candidate["estimates"]),
        "beside": beside,
        "target": _target(candidate.get("target")),
    }


def _estimates(found: dict[str, Any]) -> Table:
    rows = [
        (
            name.replace("_", "-").upper(),
            number(found[name]["value"]),
            interval(found[name]["interval"]),
            number(found[name]["standard_error"]),
            f"{meaning}{_on_interval(found[name])}",
        )
        for name, meaning in ESTIMATORS.items()
    ]
    return Table(("estimator", "value", "interval", "standard error", "what it is"), rows, {1, 2, 3}, {4})  # fmt: skip


def _on_interval(estimate: dict[str, Any]) -> str:
    """The interval's method, or the reason why there is none."""
    if estimate.get("no_interval") is not None:  # evaluations of earlier builds state none
        return f" (no interval: {estimate['no_interval']})"
    return "" if estimate["method"] is None else f" ({estimate['method']})"


def _target(target: dict[str, Any] | None) -> str:
    if target is None:
        return ""
    if not target["is_identifiable"]:
        return f"Target value: not identifiable, because {target['reason']}."
    return (
        f"Target value without target rewards: {number(target['value'])}"
        f" {interval(target['interval'])}; with the other density ratio {number(target['checked'])};"
        f" effective rounds {target['effective_rounds']:,.0f}; domain accuracy"
        f" {target['domain_accuracy']:.0%}."
    )
