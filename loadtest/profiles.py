"""What is played against the service, and what must come of it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean

from loadtest.bench import Bench, Stage
from loadtest.checks import Check, at_least, at_most
from loadtest.figures import (
    growth,
    learning,
    lost_events,
    no_error,
    other_errors,
    p99_of,
    recovery_seconds,
    without_retry_after,
)
from loadtest.knee import SETTLING_SECONDS, Promise, find_knee
from loadtest.training_beside import Trained

WARM_UP_RATE, WARM_UP_SECONDS = 20.0, 3
GOODPUT_SHARE = 0.9
RECOVERY_SECONDS = 5
BACK = 2.0  # p99 is back when it is within so many times what it was before
REFUSAL_SECONDS = 0.25
TRAINING_RATIO = 1.5
REDIS_RESTARTS = (0.3, 0.7)  # at these shares of a soak


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for; zero: the profile's own choice."""

    rate: float = 0.0
    seconds: int = 0
    step_seconds: int = 5
    repeats: int = 3
    promise: Promise = field(default_factory=Promise)


Profile = Callable[[Bench, Plan], list[Check]]


def warm_up(bench: Bench) -> None:
    """The first requests load policies and open pools; they are in the report, in no figure."""
    bench.play("warm-up", WARM_UP_RATE, WARM_UP_SECONDS)


def select(bench: Bench, plan: Plan) -> list[Check]:
    """Latency at 50, 80 and 95 % of the knee, or at one given rate."""
    seconds = plan.seconds or 20
    if plan.rate:
        return [no_error([bench.play("select", plan.rate, seconds)])]
    knee = _knee(bench, plan)
    half = bench.play("50 % of the knee", 0.5 * knee.rate, seconds)
    for share in (0.8, 0.95):
        bench.play(f"{100 * share:.0f} % of the knee", share * knee.rate, seconds)
    return [no_error([half])]


def mixed(bench: Bench, plan: Plan) -> list[Check]:
    """Ten selects to one reward for minutes: neither latency nor memory may grow."""
    rate = plan.rate or 0.5 * _knee(bench, plan).rate
    stage = bench.play("mixed", rate, plan.seconds or 300)
    return [no_error([stage]), *growth(bench, stage), *lost_events(bench)]


def overload(bench: Bench, plan: Plan) -> list[Check]:
    """Twice the knee, then half of it: most of the goodput stays, and latency comes back soon.

    The knee's goodput is that of the minute around the overload: the knee was found minutes ago, and
    machines that are shared change their speed.
    """
    seconds = plan.seconds or 20
    knee = _knee(bench, plan).rate
    before, knee_before, twice, after, knee_after = bench.play_on(
        [
            ("half the knee", 0.5 * knee, max(5, seconds // 2)),
            ("the knee", knee, max(5, seconds // 2)),
            ("twice the knee", 2 * knee, seconds),
            ("half the knee again", 0.5 * knee, max(10, seconds // 2)),
            ("the knee again", knee, max(5, seconds // 2)),
        ]
    )
    share = _goodput(twice) / mean([_goodput(knee_before), _goodput(knee_after)])
    recovered = recovery_seconds(after, BACK * before.after(SETTLING_SECONDS).p99)
    refused = twice.whole.refused
    return [
        at_least("refusals: less is no overload", refused.total, 1, "{:.0f}"),
        at_least("goodput at twice the knee ÷ at the knee", share, GOODPUT_SHARE),
        at_most("p99 of refusals, s", refused.quantile(0.99), REFUSAL_SECONDS),
        at_most("refusals without Retry-After", without_retry_after(bench), 0, "{:.0f}"),
        at_most("errors at twice the knee beside refusals", other_errors(twice), 0, "{:.0f}"),
        at_most("seconds until p99 is back", recovered, RECOVERY_SECONDS, "{:.0f}"),
    ]


def training(bench: Bench, plan: Plan) -> list[Check]:
    """Selects while encoders of other experiments train, against selects while none does."""
    seconds = plan.seconds or 10
    rate = plan.rate or 0.3 * _knee(bench, plan).rate
    quiet: list[Stage] = []
    busy: list[Stage] = []
    with Trained(bench.service, seconds) as trained:
        for _ in range(plan.repeats):
            quiet.append(bench.play("no training", rate, seconds))
            trained.begin()
            busy.append(bench.play("training", rate, seconds))
            bench.note(trained.finish())
    ratio = p99_of(busy) / p99_of(quiet)
    return [
        at_most("p99 while an encoder trains ÷ while none does", ratio, TRAINING_RATIO),
        at_least("encoders trained", trained.count, plan.repeats, "{:.0f}"),
        no_error([*quiet, *busy]),
    ]


def soak(bench: Bench, plan: Plan) -> list[Check]:
    """Half the knee for long, with trainings, snapshots and restarts of Redis."""
    rate, seconds = plan.rate or 0.5 * _knee(bench, plan).rate, plan.seconds or 1200
    with _redis_restarts(bench, [share * seconds for share in REDIS_RESTARTS]):
        stage = bench.play("soak", rate, seconds)
    return [no_error([stage]), *growth(bench, stage), *learning(bench), *lost_events(bench)]


PROFILES: dict[str, Profile] = {
    "select": select,
    "mixed": mixed,
    "overload": overload,
    "training": training,
    "soak": soak,
}


def _goodput(stage: Stage) -> float:
    return stage.after(SETTLING_SECONDS).goodput


def _knee(bench: Bench, plan: Plan) -> Stage:
    def step(rate: float) -> Stage:
        stage = bench.play(f"step {rate:.0f}/s", rate, plan.step_seconds)
        return stage.after(SETTLING_SECONDS)

    knee = find_knee(step, plan.promise)
    bench.note(f"the knee: {knee.rate:.0f} requests a second")
    return knee


@contextmanager
def _redis_restarts(bench: Bench, moments: Sequence[float]) -> Iterator[None]:
    restart = bench.service.restart_redis

    def disturb() -> None:
        assert restart is not None
        restart()
        bench.note("Redis was restarted")

    timers = [threading.Timer(moment, disturb) for moment in moments if restart is not None]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
