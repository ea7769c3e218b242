"""Small drawings as SVG paths, without scripts and styles: sparklines and scatter plots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 100.0, 28.0  # of a sparkline
SIZE = 300.0  # of a scatter plot
MARGIN = 8.0
MOST_GROUPS = 8  # with a colour of their own


@dataclass(frozen=True, slots=True)
class Group:
    """The points of one colour as a path of dots."""

    name: str
    path: str
    number: int


def sparkline(values: Sequence[float], low: float = 0.0, high: float = 1.0) -> str:
    """The path of a line through values between `low` and `high`; empty for fewer than two."""
    if len(values) < 2:
        return ""
    step = WIDTH / (len(values) - 1)
    height = [HEIGHT - 2 - (HEIGHT - 4) * (each - low) / (high - low) for each in values]
    points = [f"{step * place:.1f} {y:.1f}" for place, y in enumerate(height)]
    return "M" + "L".join(points)


def scatter(points: Sequence[Mapping[str, Any]], key: str) -> list[Group]:
    """The points by what they have under `key`, the largest groups first; small groups join the last."""
    names = _names([str(each[key]) for each in points])
    groups: dict[str, list[str]] = {name: [] for name in names}
    for each, (x, y) in zip(points, _scaled(points), strict=True):
        name = str(each[key])
        groups[name if name in groups else names[-1]].append(f"M{x:.1f} {y:.1f}h0")
    return [
        Group(name, "".join(dots), number + 1) for number, (name, dots) in enumerate(groups.items())
    ]


def _names(names: Sequence[str]) -> list[str]:
    ranked = sorted(set(names), key=lambda name: (-names.count(name), name))
    return ranked if len(ranked) <= MOST_GROUPS else [*ranked[: MOST_GROUPS - 1], "all others"]


def _scaled(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Places in the drawing; both directions have the same scale."""
    if not points:
        return []
    xs, ys = [each["x"] for each in points], [each["y"] for each in points]
    spread = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    scale = (SIZE - 2 * MARGIN) / spread
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return [
        (SIZE / 2 + scale * (x - middle_x), SIZE / 2 - scale * (y - middle_y))
        for x, y in zip(xs, ys, strict=True)
    ]
