"""Plots: bars next to the paper's, cumulative regret, gains on all pairs."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.methods import SCRATCH
from benchmarks.paper.pairs_summary import BASELINE, CHALLENGERS, MARGIN
from benchmarks.paper.summary import Summary
from service.pages.plot_style import COLOURS as COLOURS_BY_ROLE, in_plot_style, legend_above

OURS, THEIRS = COLOURS_BY_ROLE["target"], COLOURS_BY_ROLE["source"]
COLOURS = {
    "linucb": "#b0b4ba",
    "linucb-p": "#8a8f98",
    "nlinucb": "#d08c3f",
    "nlinucb-p": "#a8662a",
    "nlinucb + ensemble": "#6b8f3c",
    "daband": OURS,
    "daband-plus": "#0a3d62",
    SCRATCH.name: "#b03a2e",
}


def table_figures(summary: Summary) -> dict[str, Figure]:
    """The pictures of one data set by their names' endings."""
    found = {}
    if summary["zero_shot"]:
        title = f"{summary['dataset']}: zero-shot target accuracy"
        found["zero-shot"] = bars(summary["zero_shot"], title)
    if summary["ablation"]:
        found["ablation"] = bars(summary["ablation"], f"{summary['dataset']}: ablation of daband")
    if summary["continued"]:
        found["continued"] = regret_curves(
            summary["continued"], f"{summary['dataset']}: rewards from the target"
        )
    return found


@in_plot_style
def bars(entries: Mapping[str, Summary], title: str) -> Figure:
    """Our figures with their spread and seeds, next to the paper's."""
    figure, axes = _figure(title, "accuracy")
    places = np.arange(len(entries))
    means = [entry["mean"] for entry in entries.values()]
    stds = [entry["std"] for entry in entries.values()]
    axes.bar(places - 0.2, means, 0.38, yerr=stds, color=OURS, capsize=3, label="ours")
    theirs = [(entry["paper"] or {}).get("mean", np.nan) for entry in entries.values()]
    if not np.isnan(theirs).all():
        spread = [(entry["paper"] or {}).get("std", np.nan) for entry in entries.values()]
        axes.bar(places + 0.2, theirs, 0.38, yerr=spread, color=THEIRS, capsize=3, label="paper")
    for place, entry in zip(places, entries.values(), strict=True):
        shown = entry["seeds"]
        axes.plot([place - 0.2] * len(shown), shown, ".", color="black", markersize=3)
        axes.annotate(
            f"{entry['mean']:.3f}",
            (place - 0.2, entry["mean"] + entry["std"]),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_xticks(places, list(entries), rotation=20, ha="right")
    axes.set_ylim(0, 1.08)
    legend_above(axes)
    return figure


@in_plot_style
def regret_curves(entries: Mapping[str, Summary], title: str) -> Figure:
    """Cumulative regret over the target rounds, mean and spread."""
    figure, axes = _figure(title, "cumulative target regret")
    for method, entry in entries.items():
        curve = entry["curve"]
        rounds, mean, std = (np.array(curve[name]) for name in ("rounds", "mean", "std"))
        style = "--" if method == SCRATCH.name else "-"
        axes.plot(rounds, mean, style, color=COLOURS[method], label=method, linewidth=1.8)
        axes.fill_between(rounds, mean - std, mean + std, color=COLOURS[method], alpha=0.15, lw=0)
    axes.set_xlabel("target rounds with reward")
    axes.set_ylim(bottom=0)
    legend_above(axes)
    return figure


@in_plot_style
def gains_figure(pairs: Mapping[str, Summary]) -> Figure:
    """What each pair gains over the baseline, the worst at the bottom."""
    figure = Figure(figsize=(7, 1.2 + 0.26 * len(pairs)), layout="constrained")
    axes = figure.subplots()
    order = sorted(pairs, key=lambda pair: max(pairs[pair]["differences"].values()))
    places = np.arange(len(order))
    there = [m for m in CHALLENGERS if any(m in pair["differences"] for pair in pairs.values())]
    height = 0.8 / len(there)
    for number, method in enumerate(there):
        gains = [pairs[pair]["differences"].get(method, 0.0) for pair in order]
        offset = (number - (len(there) - 1) / 2) * height
        axes.barh(places + offset, gains, 0.95 * height, color=COLOURS[method], label=method)
    axes.axvline(-MARGIN, color=COLOURS[SCRATCH.name], linestyle="--", linewidth=1)
    axes.set_yticks(places, order, fontsize=8)
    axes.set(xlabel=f"gain in target accuracy over {BASELINE}", title="Every pair of domains")
    axes.margins(y=0.01)
    axes.grid(visible=False, axis="y")
    legend_above(axes)
    return figure


def _figure(title: str, label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, ylabel=label)
    axes.grid(visible=False, axis="x")
    return figure, axes
