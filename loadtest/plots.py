"""A run over time as a picture: rates, latencies, CPU and memory below each other."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.bench import Bench, Stage
from loadtest.histogram import Histogram
from loadtest.request_counts import Second, good_count
from loadtest.sampling import MEBIBYTE, Sample
from service.pages.plot_style import COLOURS, in_plot_style

BINS = 200  # a long run is drawn in at most so many points
PERCENTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # over no curve
HEADROOM = 1.1


def draw(bench: Bench, path: Path, title: str) -> None:
    """Write the picture of a run."""
    _figure(bench, title).savefig(path, dpi=110)


@in_plot_style
def _figure(bench: Bench, title: str) -> Figure:
    figure = Figure(figsize=(10, 10), layout="constrained")
    rates, latencies, cpu, memory = figure.subplots(4, 1, sharex=True)
    points = list(_points(bench))
    _draw_rates(rates, points)
    _draw_latencies(latencies, points)
    _draw_samples(cpu, bench, "CPU, cores", _cpu_shares)
    _draw_samples(memory, bench, "memory, MiB", _sizes)
    for axes in (rates, latencies, cpu, memory):
        for moment, _ in bench.events:
            axes.axvline(moment - bench.started, color=COLOURS["muted"], linestyle=":", linewidth=1)
    for moment, what in bench.events:
        rates.annotate(what, (moment - bench.started, 0), rotation=90, fontsize=7, alpha=0.7)
    rates.set_title(title)
    memory.set_xlabel("seconds")
    return figure


Point = tuple[float, int, Second]  # seconds from the start, how many seconds it stands for, what


def _points(bench: Bench) -> Iterator[Point]:
    total = sum(stage.seconds for stage in bench.stages)
    width = max(1, math.ceil(total / BINS))
    for stage in bench.stages:
        for at in range(0, stage.seconds, width):
            yield _point(bench, stage, at, min(width, stage.seconds - at))


def _point(bench: Bench, stage: Stage, at: int, width: int) -> Point:
    whole = Second()
    for second in stage.series[at : at + width]:
        whole.merge(second)
    return stage.start - bench.started + at + width / 2, width, whole


def _draw_rates(axes: Axes, points: list[Point]) -> None:
    moments = [moment for moment, *_ in points]
    axes.plot(moments, [each.due / width for _, width, each in points], label="offered")
    axes.plot(moments, [good_count(each) / width for _, width, each in points], label="good")
    refused = [each.refused.total / width for _, width, each in points]
    if any(refused):
        axes.plot(moments, refused, label="refused (503)", color=COLOURS["bad"])
    axes.set_ylabel("requests a second")
    axes.legend(**BESIDE)


def _draw_latencies(axes: Axes, points: list[Point]) -> None:
    moments = [moment for moment, *_ in points]
    for name, share in PERCENTILES.items():
        axes.plot(moments, [_milliseconds(each.good, share) for *_, each in points], label=name)
    axes.set_yscale("log")
    axes.set_ylabel("latency, ms")
    axes.legend(**BESIDE)


def _milliseconds(histogram: Histogram, share: float) -> float:
    return 1e3 * histogram.quantile(share) if histogram.total else math.nan


def _draw_samples(
    axes: Axes, bench: Bench, label: str, values: Callable[[list[Sample]], list[float]]
) -> None:
    for name, samples in bench.sampler.samples.items():
        moments = [each.moment - bench.started for each in samples]
        axes.plot(moments, values(samples), label=name)
    axes.set_ylabel(label)
    axes.set_ylim(0, HEADROOM * axes.get_ylim()[1])
    if bench.sampler.samples:
        axes.legend(**BESIDE)


def _cpu_shares(samples: list[Sample]) -> list[float]:
    shares = [
        (later.cpu_seconds - earlier.cpu_seconds) / (later.moment - earlier.moment)
        for earlier, later in pairwise(samples)
    ]
    return [math.nan, *shares][: len(samples)]


def _sizes(samples: list[Sample]) -> list[float]:
    return [each.memory_bytes / MEBIBYTE for each in samples]
