"""An evaluation as one self-contained HTML page with plots, without scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;width:100%;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid #d8dee4;text-align:right}
th:first-child,td:first-child{text-align:left}
.headline{font-weight:600}.warn{color:#9a3412}.faint{color:#57606a}
svg{width:100%;height:auto;background:#fafbfc;border:1px solid #d8dee4}
"""
COLOURS = ("#0b62c4", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490", "#a16207", "#be185d")
ESTIMATORS = ("dr", "switch_dr", "snips", "ips", "replay", "dm")
WIDTH, LEFT, RIGHT, TOP = 900, 210, 30, 26


def page(result: dict[str, Any]) -> str:
    """The whole page."""
    name = result.get("experiment") or result.get("log") or "log"
    candidates = result["candidates"]
    parts = [
        f"<h1>Offline evaluation of {escape(str(name))}</h1>",
        _facts(result),
        "<h2>Values</h2>",
        _interval_plot(candidates, result["logged"]["value"]),
        _table(candidates),
        "<h2>As the log grew</h2>",
        '<p class="faint">The band is the confidence sequence: it is valid at any time.'
        " All other intervals are valid for a single look.</p>",
        _curve_plot(candidates),
        *(_details(each) for each in candidates),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(str(name))}</title>'
        f"<style>{STYLE}</style></head><body>{body}</body></html>"
    )


def number(value: float | None, digits: int = 4) -> str:
    """A formatted number, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(ends: Sequence[float] | None) -> str:
    """A formatted interval, or a dash for None."""
    return "–" if ends is None else f"[{ends[0]:.4f}, {ends[1]:.4f}]"


def _facts(result: dict[str, Any]) -> str:
    logged = result["logged"]
    facts = [
        f"{result['rounds']:,} rounds of the {result['domain']} domain",
        f"the log itself earned {number(logged['value'])} {interval(logged['interval'])}",
        f"intervals have {result['confidence']:.0%} confidence",
    ]
    if unit := result.get("reward_range"):
        facts.append(f"values lie between 0, which is {unit[0]:g}, and 1, which is {unit[1]:g}")
    if result.get("bad_lines"):
        facts.append(f"{result['bad_lines']:,} bad lines were skipped")
    return f"<p>{escape('; '.join(facts))}.</p>"


def _table(candidates: Iterable[dict[str, Any]]) -> str:
    titles = (
        "candidate",
        "value (DR)",
        "interval",
        "SNIPS",
        "IPS",
        "effective n",
        "max weight",
        "overlap",
    )
    rows = [_row(titles, "th")]
    rows += [_row(cells(each), "td") for each in candidates]
    return f"<table>{''.join(rows)}</table>"


def cells(candidate: dict[str, Any]) -> tuple[str, ...]:
    """The figures of a candidate's row in a table."""
    support, found = candidate["support"], candidate["estimates"]
    return (
        candidate["name"],
        number(candidate["value"]),
        interval(found["dr"]["interval"]),
        number(found["snips"]["value"]),
        number(found["ips"]["value"]),
        f"{support['effective_rounds']:,.0f}",
        f"{support['max_weight']:.1f}",
        "unknown" if support["overlap"] is None else f"{support['overlap']:.1%}",
    )


def _row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _details(candidate: dict[str, Any]) -> str:
    rows = [_row(("estimator", "value", "standard error", "interval", "method"), "th")]
    for name in ESTIMATORS:
        each = candidate["estimates"][name]
        cells = (
            name,
            number(each["value"]),
            number(each["standard_error"]),
            interval(each["interval"]),
            each["method"] or "–",
        )
        rows.append(_row(cells, "td"))
    beside = (
        f"Bootstrap of DR {interval(candidate['bootstrap'])}, confidence sequence"
        f" {interval(candidate['sequence'])}. DM has no interval: its error has no bound."
    )
    warnings = "".join(f'<p class="warn">{escape(each)}</p>' for each in candidate["warnings"])
    return (
        f"<h3>{escape(candidate['name'])}</h3>{warnings}<table>{''.join(rows)}</table>"
        f'<p class="faint">{escape(beside)}</p>{_target(candidate.get("target"))}'
    )


def _target(target: dict[str, Any] | None) -> str:
    if target is None:
        return ""
    if not target["is_identifiable"]:
        return f'<p class="warn">Target value: not identifiable: {escape(target["reason"])}.</p>'
    text = (
        f"Target value without target rewards: {number(target['value'])}"
        f" {interval(target['interval'])}; with the other density ratio {number(target['checked'])};"
        f" effective n {target['effective_rounds']:,.0f}; domain accuracy"
        f" {target['domain_accuracy']:.0%}."
    )
    return f"<p>{escape(text)}</p>"


class _Scale:
    """A linear scale from values to coordinates."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        spread = (high - low) or 1.0
        self._low, self._step = low, (end - start) / spread
        self._start = start
        self.ticks = [low + spread * part / 4 for part in range(5)]

    def __call__(self, value: float) -> float:
        return round(self._start + (value - self._low) * self._step, 1)


def _interval_plot(candidates: Sequence[dict[str, Any]], logged: float | None) -> str:
    ends = [_shown(each) for each in candidates]
    values = [end for pair in ends for end in pair] + ([] if logged is None else [logged])
    if not values:
        return "<p>There is nothing to show.</p>"
    place = _Scale(min(values), max(values), LEFT, WIDTH - RIGHT)
    height = TOP + 30 * len(candidates) + 30
    marks = [_axis(place, height)]
    if logged is not None:
        x = place(logged)
        marks.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - 26}" stroke="#57606a"'
            f' stroke-dasharray="4 3"/><text x="{x + 4}" y="{TOP - 8}" font-size="12">log</text>'
        )
    for row, (each, (low, high)) in enumerate(zip(candidates, ends, strict=True)):
        y, colour = TOP + 30 * row + 14, COLOURS[row % len(COLOURS)]
        marks.append(f'<text x="8" y="{y + 4}" font-size="13">{escape(each["name"][:30])}</text>')
        marks.append(
            f'<line x1="{place(low)}" x2="{place(high)}" y1="{y}" y2="{y}" stroke="{colour}"'
            ' stroke-width="3"/>'
        )
        if each["value"] is not None:
            marks.append(f'<circle cx="{place(each["value"])}" cy="{y}" r="5" fill="{colour}"/>')
    return _svg(height, marks, "values and intervals")


def _shown(candidate: dict[str, Any]) -> tuple[float, float]:
    ends = candidate["estimates"]["dr"]["interval"]
    if ends is not None:
        return ends[0], ends[1]
    value = candidate["value"] or 0.0
    return value, value


def _curve_plot(candidates: Sequence[dict[str, Any]]) -> str:
    curves = [(each["name"], each["curve"]) for each in candidates if each["curve"]]
    points = [point for _, curve in curves for point in curve]
    if not points:
        return "<p>There is nothing to show.</p>"
    height = 340
    x = _Scale(0, max(point[0] for point in points), LEFT - 140, WIDTH - RIGHT)
    values = [value for point in points for value in point[1:4] if value is not None]
    y = _Scale(max(0.0, min(values)), min(1.0, max(values)), height - 40, TOP)
    marks = [_axis(x, height, is_count=True)]
    marks += [f'<text x="4" y="{y(tick)}" font-size="12">{tick:.3f}</text>' for tick in y.ticks]
    for index, (name, curve) in enumerate(curves):
        marks += _curve(curve, x, y, COLOURS[index % len(COLOURS)])
        marks.append(
            f'<text x="{WIDTH - RIGHT - 220}" y="{TOP + 16 * index}" font-size="12"'
            f' fill="{COLOURS[index % len(COLOURS)]}">{escape(name[:34])}</text>'
        )
    return _svg(height, marks, "value and confidence sequence over rounds")


def _curve(curve: Sequence[Sequence[Any]], x: _Scale, y: _Scale, colour: str) -> list[str]:
    upper = [f"{x(point[0])},{y(min(1.0, point[3]))}" for point in curve]
    lower = [f"{x(point[0])},{y(max(0.0, point[2]))}" for point in reversed(curve)]
    line = [f"{x(point[0])},{y(point[1])}" for point in curve if point[1] is not None]
    return [
        f'<polygon points="{" ".join([*upper, *lower])}" fill="{colour}" opacity="0.12"/>',
        f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]


def _axis(place: _Scale, height: int, *, is_count: bool = False) -> str:
    texts = (
        f'<text x="{place(tick)}" y="{height - 8}" font-size="12" text-anchor="middle">'
        f"{f'{tick:,.0f}' if is_count else f'{tick:.3f}'}</text>"
        for tick in place.ticks
    )
    return "".join(texts)


def _svg(height: int, marks: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(marks)}</svg>'
    )
