"""The figures that the checks of the profiles are about."""

import asyncio
from collections.abc import Iterable

from loadtest.bench import Bench, Stage
from loadtest.checks import Check, at_least, at_most
from loadtest.histogram import Histogram, merged
from loadtest.lost_events import compared, logged_ids
from loadtest.patient_client import patient_client
from loadtest.request_counts import REFUSED, Second
from loadtest.sampling import memory_slope

SLOPE_BOUND = 1.0  # MiB in ten minutes
WARM_UP_SHARE = 0.25  # of a long run: caches fill, pools grow
GROWTH_BOUND = 1.25
LONG_SECONDS = 120  # a shorter run shows no growth, only how a process begins


def p99_of(stages: Iterable[Stage]) -> float:
    """The 99th percentile of all good answers together, in seconds."""
    return merged(stage.whole.good for stage in stages).quantile(0.99)


def recovery_seconds(stage: Stage, bound: float) -> float:
    """Seconds after which the p99 of all that follows is within the bound; infinite if never."""
    for start in range(stage.seconds):
        if stage.after(start).p99 <= bound:
            return start
    return float("inf")


def no_error(stages: Iterable[Stage]) -> Check:
    """Every request got what it asked for."""
    return at_most("errors", sum(stage.error_count for stage in stages), 0, "{:.0f}")


def other_errors(stage: Stage) -> int:
    """Errors that are no refusals."""
    refused = sum(n for (_, outcome), n in stage.whole.outcomes.items() if outcome == REFUSED)
    return stage.error_count - refused


def without_retry_after(bench: Bench) -> int:
    """Refusals that do not say when to come again."""
    return sum(played.counts.refused_without_retry_after for played in bench.runs)


def growth(bench: Bench, stage: Stage) -> list[Check]:
    """Whether latency and memory grow; a short run gives no figure."""
    if stage.seconds < LONG_SECONDS:
        return []
    return [latency_growth(stage), *memory_growth(bench, stage)]


def latency_growth(stage: Stage) -> Check:
    """The median of the last third of a run against that of its first, after warming up."""
    warm = stage.after(int(WARM_UP_SHARE * stage.seconds))
    third = max(1, warm.seconds // 3)
    first = _good(warm.series[i] for i in range(third))
    last = _good(warm.series[i] for i in range(warm.seconds - third, warm.seconds))
    ratio = last.quantile(0.5) / first.quantile(0.5)
    return at_most("median latency, last third ÷ first", ratio, GROWTH_BOUND)


def _good(series: Iterable[Second]) -> Histogram:
    return merged(second.good for second in series)


def memory_growth(bench: Bench, stage: Stage) -> list[Check]:
    """What each group of processes adds, after warming up; the database's caches are its own."""
    start = stage.start + WARM_UP_SHARE * stage.seconds
    checks = []
    for name, samples in bench.sampler.samples.items():
        if name != "database":
            slope = memory_slope([each for each in samples if start <= each.moment <= stage.end])
            title = f"memory of the {name}, MiB added in 10 minutes"
            checks.append(at_most(title, slope, SLOPE_BOUND))
    return checks


def learning(bench: Bench) -> list[Check]:
    """Encoders must be trained and snapshots published during the run."""
    with patient_client(bench.service) as client:
        state = client.state(bench.workload.experiment)
    return [
        at_least("encoders trained", state.noted.get("episode", 0), 1, "{:.0f}"),
        at_least("snapshots published", state.policy_version, 1, "{:.0f}"),
    ]


def lost_events(bench: Bench) -> list[Check]:
    """Acknowledged events that the log does not hold, and events that it holds twice."""
    url = bench.service.database_url
    if url is None:
        return []
    logged = asyncio.run(logged_ids(url, bench.workload.experiment))
    found = compared(bench.player.acknowledged(), logged)
    title = f"events lost of {found.acknowledged} acknowledged"
    return [
        at_most(title, found.lost, 0, "{:.0f}"),
        at_most(f"events repeated of {found.logged} in the log", found.repeated, 0, "{:.0f}"),
    ]
