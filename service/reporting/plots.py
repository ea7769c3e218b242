"""The plots of the transfer report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from model import SIGN_LIMITS, Domain, Doubles, LatentMap
from service.pages.plot_style import COLOURS, DASHES, MARKERS, SERIES, legend_above, threshold
from service.records import RewardRange
from service.reporting.figures import DIAGNOSTICS, shortened

DOMAIN_COLOURS = {Domain.SOURCE: COLOURS["source"], Domain.TARGET: COLOURS["target"]}
MOST_ARMS = 8  # maximum of arms in a plot
LONGEST = 18  # characters of an arm's name
BLOCKS = 40
TERMS = ("predicted_reward", "source_regret", "divergence", "regression_error")
OUTCOMES = {
    "encoder_activated": ("good", "o", "activated"),
    "encoder_refused": ("bad", "X", "refused"),
    "encoder_waits": ("caution", "D", "waits for promotion"),
}

Draw = Callable[[Axes], None]


def learning_curve(rewards: Mapping[Domain, Doubles], unit: RewardRange) -> Draw:
    """Mean reward over the remembered rounds, in blocks, in the unit of the outcomes."""

    def draw(axes: Axes) -> None:
        for domain, values in rewards.items():
            if len(values):
                blocks = np.array_split(values, min(BLOCKS, len(values)))
                ends = np.cumsum([len(block) for block in blocks])
                means = [unit.in_unit(float(block.mean())) for block in blocks]
                marker = "o" if domain is Domain.SOURCE else "s"
                axes.plot(
                    ends,
                    means,
                    marker,
                    ls="-",
                    ms=3,
                    color=DOMAIN_COLOURS[domain],
                    label=str(domain),
                )
        axes.set(xlabel="rewards", ylabel="mean reward", ylim=_limits(unit, -0.02, 1.02))
        legend_above(axes)

    return draw


def expected_by_version(versions: Sequence[Mapping[str, Any]]) -> Draw:
    """The expected reward of each judged encoder version and its lower bound, with the thresholds."""
    limit = SIGN_LIMITS["expected_reward"]

    def draw(axes: Axes) -> None:
        titles = {"reward": "expected reward", "lower": "lower bound"}
        _draw_by_version(axes, versions, "expected", titles)
        axes.set(ylim=(0.0, 1.05))
        for value, name in ((limit.weak, "caution"), (limit.untrusted, "bad")):
            if value is not None:
                threshold(axes, value, name)

    return draw


def terms_by_version(versions: Sequence[Mapping[str, Any]], unit: RewardRange) -> Draw:
    """The diagnostic terms of each judged encoder version, in the unit of the outcomes."""

    def draw(axes: Axes) -> None:
        titles = {name: DIAGNOSTICS[name][0] for name in TERMS}
        _draw_by_version(axes, versions, "diagnostics", titles, unit.width)
        axes.set_ylim(0.0, 1.1 * axes.get_ylim()[1])

    return draw


def _draw_by_version(
    axes: Axes,
    versions: Sequence[Mapping[str, Any]],
    part: str,
    titles: Mapping[str, str],
    factor: float = 1.0,
) -> None:
    at = [each["encoder_version"] for each in versions]
    for index, (name, title) in enumerate(titles.items()):
        values = [factor * each[part][name] for each in versions]
        axes.plot(
            at,
            values,
            marker=MARKERS[index],
            ms=4,
            ls=DASHES[index % len(DASHES)],
            color=SERIES[index],
            label=title,
        )
    axes.set(xlabel="encoder version", xlim=(min(at) - 0.5, max(at) + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    legend_above(axes)


def domain_map(found: LatentMap) -> Draw:
    """Latents by domain."""

    def draw(axes: Axes) -> None:
        for domain, marker in ((Domain.SOURCE, "o"), (Domain.TARGET, "x")):
            rows = found.is_target == (domain is Domain.TARGET)
            x, y = found.points[rows].T
            colour = DOMAIN_COLOURS[domain]
            axes.scatter(x, y, s=12, marker=marker, color=colour, lw=1, label=str(domain))
        _finish_map(axes)

    return draw


def arm_map(found: LatentMap, arms: Sequence[str]) -> Draw:
    """Target latents by their best-rated arm, above those of the source."""
    counts = np.bincount(found.arms[found.is_target], minlength=len(arms))
    most = [index for index in np.argsort(-counts, kind="stable").tolist() if counts[index]]

    def draw(axes: Axes) -> None:
        x, y = found.points[~found.is_target].T
        axes.scatter(x, y, s=8, color=COLOURS["source"], alpha=0.3, lw=0, label="source")
        for place, index in enumerate(most[:MOST_ARMS]):
            x, y = found.points[found.is_target & (found.arms == index)].T
            style: dict[str, Any] = {"marker": MARKERS[place], "color": SERIES[place]}
            axes.scatter(x, y, s=18, lw=0, label=shortened(arms[index], LONGEST), **style)
        _finish_map(axes)

    return draw


def _finish_map(axes: Axes) -> None:
    axes.set(xlabel="first direction", ylabel="second direction", xticks=[], yticks=[])
    legend_above(axes, markerscale=1.3)


def arm_priors(priors: Mapping[Domain, Doubles], arms: Sequence[str]) -> Draw:
    """How often each arm is the best-rated one, by domain."""
    most = np.argsort(-sum(priors.values()), kind="stable")[:MOST_ARMS][::-1]

    def draw(axes: Axes) -> None:
        at = np.arange(len(most))
        for offset, domain in ((0.2, Domain.SOURCE), (-0.2, Domain.TARGET)):
            widths = 100 * priors[domain][most]
            hatch = "" if domain is Domain.TARGET else "//"
            axes.barh(
                at + offset, widths, 0.36, color=DOMAIN_COLOURS[domain], label=str(domain), hatch=hatch,
                edgecolor=COLOURS["grid"], lw=0,
            )  # fmt: skip
        axes.set_yticks(at, [shortened(arms[index], LONGEST) for index in most])
        axes.grid(visible=False, axis="y")
        axes.set(xlabel="% of contexts", xlim=(0, None))
        legend_above(axes)

    return draw


def gate_history(entries: Sequence[Mapping[str, Any]], unit: RewardRange) -> Draw:
    """Held-out source reward of each trained encoder, by its outcome."""

    def draw(axes: Axes) -> None:
        for what, (colour, marker, label) in OUTCOMES.items():
            some = [each["details"] for each in entries if each["what"] == what]
            at = [each["episode"] for each in some]
            # An encoder that was refused before it was measured is plotted at the lowest reward.
            rewards = [unit.in_unit(each["verdict"].get("reward") or 0.0) for each in some]
            if some:
                text = f"{label} ({len(some)})"
                axes.scatter(at, rewards, s=22, color=COLOURS[colour], marker=marker, label=text)
        episodes = [each["details"]["episode"] for each in entries]
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        # An estimated mean in [0, 1] may be slightly above 1.
        axes.set(
            xlabel="encoder update",
            ylabel="held-out source reward",
            xlim=(min(episodes) - 0.5, max(episodes) + 0.5),
            ylim=_limits(unit, -0.02, 1.1),
        )
        legend_above(axes)

    return draw


def regret_curve(curve: Sequence[Sequence[float]], unit: RewardRange) -> Draw:
    """Cumulative regret of target rewards."""

    def draw(axes: Axes) -> None:
        rewards, regret = zip(*curve, strict=True)
        axes.plot(rewards, [unit.width * each for each in regret], color=COLOURS["target"])
        axes.set(
            xlabel="target rewards", ylabel="cumulative regret", ylim=(0, None), xlim=(0, None)
        )

    return draw


def _limits(unit: RewardRange, low: float, high: float) -> tuple[float, float]:
    return unit.in_unit(low), unit.in_unit(high)
