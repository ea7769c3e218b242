"""The plots of an evaluation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from service.evaluating.presenting.figures import interval, number
from service.pages.plot_style import COLOURS, SERIES
from service.records import RewardRange

LONGEST = 34  # characters of a candidate's name
MARGIN = 0.03  # of the range of rewards, above and below

Draw = Callable[[Axes], None]


def intervals(candidates: Sequence[dict[str, Any]], logged: dict[str, Any]) -> Draw:
    """The value and interval of each candidate in a row of its own, with those of the log."""

    def draw(axes: Axes) -> None:
        for place, each in enumerate(candidates):
            colour, y = SERIES[place % len(SERIES)], -place
            ends = each["estimates"]["dr"]["interval"]
            if ends is not None:
                axes.plot(ends, [y, y], "-", color=colour, lw=3, solid_capstyle="butt")
            if each["value"] is not None:
                axes.plot([each["value"]], [y], "o", color=colour, ms=7)
            text = f"{each['name'][:LONGEST]}  {number(each['value'])} {interval(ends)}"
            axes.annotate(
                text, (0, y), (0, 7), xycoords=("axes fraction", "data"),
                textcoords="offset points", fontsize=8.5, color=COLOURS["ink"],
            )  # fmt: skip
        _mark_log(axes, logged)
        axes.set(ylim=(0.4 - len(candidates), 0.9), yticks=[], xlabel="value: mean reward")
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))

    return draw


def _mark_log(axes: Axes, logged: dict[str, Any]) -> None:
    value = logged["value"]
    if value is None:
        return
    if logged["interval"] is not None:
        axes.axvspan(*logged["interval"], color=COLOURS["muted"], alpha=0.2, lw=0)
    axes.axvline(value, color=COLOURS["muted"], ls=(0, (4, 3)), lw=1.2)
    axes.annotate(
        "log", (value, 1.0), (0, 2), xycoords=("data", "axes fraction"),
        textcoords="offset points", ha="center", fontsize=8.5, color=COLOURS["muted"],
    )  # fmt: skip


def growth(candidate: dict[str, Any], place: int, logged: float | None, unit: RewardRange) -> Draw:
    """The value and its confidence sequence as the log grew."""
    rounds, values, low, high = (np.array(each, dtype=float) for each in zip(*candidate["curve"], strict=True))  # fmt: skip
    colour = SERIES[place % len(SERIES)]

    def draw(axes: Axes) -> None:
        # Estimates from few rounds may lie outside of what is possible: they are drawn at its edge.
        middle, lower, upper = (np.clip(each, *unit) for each in (values, low, high))
        axes.fill_between(rounds, lower, upper, color=colour, alpha=0.2, lw=0)
        axes.plot(rounds, lower, "-", rounds, upper, "-", color=colour, lw=0.8)
        axes.plot(rounds, middle, "-", color=colour)
        if logged is not None:
            axes.axhline(logged, color=COLOURS["muted"], ls=(0, (4, 3)), lw=1.2)
            axes.annotate(
                "log", (1.0, logged), (3, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", fontsize=8.5, color=COLOURS["muted"],
            )  # fmt: skip
        space = MARGIN * unit.width
        axes.set(
            xlabel="rounds",
            ylabel="value",
            xlim=(0, None),
            ylim=(unit.low - space, unit.high + space),
        )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))

    return draw
