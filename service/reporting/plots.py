"""The plots of the transfer report, as self-contained SVG."""

import io
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from model import Domain, Doubles, LatentMap
from service.records import RewardRange

COLOURS = {Domain.SOURCE: "#8a8f98", Domain.TARGET: "#0b6e99"}
PALETTE = mpl.colormaps["tab10"].colors  # type: ignore[attr-defined]
ACCEPTED, REFUSED, WAITING = "#2a9d4e", "#c8372d", "#d69a00"
UNIT = RewardRange(0.0, 1.0)  # of rewards without a declared range
MOST_ARMS = 10  # maximum of arms in a plot
BLOCKS = 40
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # callers choose the names of arms
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
TERMS = ("source_regret", "regression_error", "divergence", "predicted_reward", "bound_total")
SIGNS = ("domain_accuracy", "raw_domain_accuracy", "mean_confidence", "share_distance")

_lock = threading.Lock()  # matplotlib's settings are global


def drawn(name: str, draw: Callable[[Axes], None], height: float = 3.2) -> str:
    """A figure as an SVG element whose ids start with its name."""
    with _lock, mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.4, height), layout="constrained")
        draw(figure.subplots())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    # Ids must be unique among the figures of a page.
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def learning_curve(
    rewards: dict[Domain, Doubles], unit: RewardRange = UNIT
) -> Callable[[Axes], None]:
    """Mean reward over the remembered rounds, in blocks, in the unit of the outcomes."""

    def draw(axes: Axes) -> None:
        for domain, values in rewards.items():
            if len(values):
                blocks = np.array_split(values, min(BLOCKS, len(values)))
                ends = np.cumsum([len(block) for block in blocks])
                means = [unit.in_unit(float(block.mean())) for block in blocks]
                axes.plot(ends, means, "o-", ms=3, color=COLOURS[domain], label=str(domain))
        axes.set(xlabel="rewards", ylabel="mean reward", ylim=_limits(unit, -0.02, 1.02))
        axes.legend()

    return draw


def by_version(
    versions: Sequence[dict[str, Any]], part: str, names: Sequence[str]
) -> Callable[[Axes], None]:
    """Some numbers of each judged encoder version."""

    def draw(axes: Axes) -> None:
        at = [each["encoder_version"] for each in versions]
        for name, colour in zip(names, PALETTE, strict=False):
            values = [each[part][name] for each in versions]
            axes.plot(at, values, "o-", ms=3, color=colour, label=name.replace("_", " "))
        axes.set(xlabel="encoder version")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=8, ncols=2)

    return draw


def domain_map(found: LatentMap) -> Callable[[Axes], None]:
    """Latents coloured by domain."""

    def draw(axes: Axes) -> None:
        for domain in Domain:
            rows = found.is_target == (domain is Domain.TARGET)
            x, y = found.points[rows].T
            axes.scatter(x, y, s=8, color=COLOURS[domain], label=str(domain))
        _finish_map(axes)

    return draw


def arm_map(found: LatentMap, arms: Sequence[str]) -> Callable[[Axes], None]:
    """Latents coloured by their best-rated arm; target contexts are crosses."""

    def draw(axes: Axes) -> None:
        for index in sorted(set(found.arms.tolist()))[: MOST_ARMS + 1]:
            for is_target, marker in ((False, "o"), (True, "x")):
                rows = (found.arms == index) & (found.is_target == is_target)
                colour = PALETTE[index % len(PALETTE)]
                label = None if is_target else shortened(arms[index])
                x, y = found.points[rows].T
                axes.scatter(x, y, s=10, marker=marker, color=colour, label=label, lw=0.8)
        _finish_map(axes)

    return draw


def _finish_map(axes: Axes) -> None:
    axes.set(xlabel="first direction", ylabel="second direction")
    axes.legend(fontsize=8, markerscale=1.5)


def arm_priors(priors: dict[Domain, Doubles], arms: Sequence[str]) -> Callable[[Axes], None]:
    """How often each arm is the best-rated one, by domain."""
    most = np.argsort(-sum(priors.values()))[:MOST_ARMS]

    def draw(axes: Axes) -> None:
        at = np.arange(len(most))
        for offset, domain in ((-0.2, Domain.SOURCE), (0.2, Domain.TARGET)):
            heights = priors[domain][most]
            axes.bar(at + offset, heights, 0.4, color=COLOURS[domain], label=str(domain))
        axes.set_xticks(at, [shortened(arms[index]) for index in most])
        axes.set(ylabel="fraction of contexts")
        axes.legend()

    return draw


def gate_history(
    entries: Sequence[dict[str, Any]], unit: RewardRange = UNIT
) -> Callable[[Axes], None]:
    """Held-out source reward of each trained encoder, by its outcome."""
    kinds = {
        "encoder_activated": (ACCEPTED, "activated"),
        "encoder_refused": (REFUSED, "refused"),
        "encoder_waits": (WAITING, "waits for promotion"),
    }

    def draw(axes: Axes) -> None:
        for what, (colour, label) in kinds.items():
            some = [each["details"] for each in entries if each["what"] == what]
            at = [each["episode"] for each in some]
            # An encoder that was refused before it was measured is plotted at 0.
            rewards = [unit.in_unit(each["verdict"].get("reward") or 0.0) for each in some]
            axes.scatter(at, rewards, s=16, color=colour, label=f"{label} ({len(some)})")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        # An estimated mean in [0, 1] may be slightly above 1.
        axes.set(xlabel="episode", ylabel="held-out source reward", ylim=_limits(unit, -0.02, 1.15))
        axes.legend(fontsize=8)

    return draw


def regret_curve(curve: Sequence[Sequence[float]]) -> Callable[[Axes], None]:
    """Cumulative regret of target rewards."""

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*curve, strict=True), color=COLOURS[Domain.TARGET])
        axes.set(xlabel="target rewards", ylabel="cumulative regret")

    return draw


def _limits(unit: RewardRange, low: float, high: float) -> tuple[float, float]:
    return unit.in_unit(low), unit.in_unit(high)


def shortened(text: str, length: int = 18) -> str:
    """A name that is short enough for a plot."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
