"""Intervals hold the truth as often as they say, over many simulated logs.

The full length (2,000 logs a scenario) is marked slow; `docs/testing.md` has its figures.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from model.ope.estimates import EvaluationOptions, ValueEstimator
from model.ope.logged import LoggedRounds
from model.ope.reward_model import RidgeRewards
from tests.support.small_world import CONTEXTS, SmallWorld

FULL = 2000
QUICK = 60
PART = 500


@dataclass(frozen=True)
class Scenario:
    """How logs are made, and how many rounds each has."""

    name: str
    world: SmallWorld
    rounds: int
    floor: float = 1.0  # share of uniform choices; 1 = a uniform log
    is_adaptive: bool = False
    share: float = 0.9  # how often the candidate plays its own arm
    has_bound: bool = True  # whether the evaluation knows the largest possible weight

    @property
    def max_weight(self) -> float | None:
        return self.world.arm_count / self.floor if self.has_bound else None

    def log(self, seed: int) -> tuple[LoggedRounds, np.ndarray]:
        rng = np.random.default_rng((seed, self.rounds, self.world.arm_count))
        if self.is_adaptive:
            return self.world.adaptive_log(self.rounds, rng, self.floor)
        best = np.eye(self.world.arm_count)[self.world.expected.argmax(axis=1)]
        logger = (1 - self.floor) * best + self.floor / self.world.arm_count
        return self.world.log(np.asarray(logger), self.rounds, rng)


SCENARIOS = (
    Scenario("uniform, K = 2", SmallWorld(3, 2), 200),
    Scenario("uniform, K = 10", SmallWorld(3, 10), 1000),
    Scenario("uniform, K = 10, rewards in [0, 1]", SmallWorld(3, 10, is_binary=False), 1000),
    Scenario("uniform, K = 10, rewards rare", SmallWorld(3, 10, 0.05), 2000),
    Scenario("uniform, K = 100", SmallWorld(3, 100), 8000),
    Scenario("rare arm, K = 10", SmallWorld(3, 10, 0.2), 4000, floor=0.2, share=1.0),
    Scenario("rare arm, K = 10, rewards rare", SmallWorld(3, 10, 0.05), 4000, floor=0.2, share=1.0),
    Scenario("own learner, K = 2", SmallWorld(3, 2), 1000, floor=0.2, is_adaptive=True),
    Scenario("own learner, K = 10", SmallWorld(3, 10), 4000, floor=0.2, is_adaptive=True),
)
# At the default ε = 0.05 the arms that the log rarely chose have weights of 40 and 200.
RARE_2 = Scenario("ε = 0.05, K = 2", SmallWorld(3, 2), 4000, floor=0.05, share=1.0)
RARE_10 = Scenario("ε = 0.05, K = 10", SmallWorld(3, 10), 20_000, floor=0.05, share=1.0)
SELDOM = replace(RARE_10, name="ε = 0.05, K = 10, rewards rare", world=SmallWorld(3, 10, 0.05))
LEARNER = Scenario(
    "own learner, ε = 0.05, K = 2", SmallWorld(3, 2), 2000, floor=0.05, is_adaptive=True
)
AT_DEFAULT = tuple(
    replace(each, name=f"{each.name}{suffix}", has_bound=has_bound)
    for each in (RARE_2, RARE_10, SELDOM, LEARNER)
    for has_bound, suffix in ((True, ""), (False, ", no weight bound"))
)
LOGS_AT_DEFAULT = 400
QUICKLY = (
    SCENARIOS[0],
    SCENARIOS[1],
    SCENARIOS[5],
    pytest.param(SCENARIOS[7], marks=pytest.mark.slow),
)


class Hits:
    """How often each interval held the truth, and how often the sequence ever missed it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.logs = 0
        self.stated = 0
        self.misses = 0
        self.held: dict[str, int] = {}
        self.policy = scenario.world.greedy(scenario.share)
        self.truth = scenario.world.value(self.policy)

    def take(self, seed: int, **changes: Any) -> None:
        rounds, seen = self.scenario.log(seed)
        if changes:
            fields = {name: getattr(rounds, name) for name in LoggedRounds.__slots__}
            rounds = LoggedRounds(**{**fields, **changes})
        arm_count = self.scenario.world.arm_count
        estimator = ValueEstimator(EvaluationOptions(max_weight=self.scenario.max_weight))
        model, is_missed = RidgeRewards(arm_count, is_per_arm=False), False
        for number, part in enumerate(rounds.parts(PART)):
            policy = self.policy[seen[number * PART : (number + 1) * PART]]
            lows, highs = estimator.add(part, policy, model.predict(part))
            is_missed |= bool((lows > self.truth).any() or (highs < self.truth).any())
            model.learn(part)
        self.logs += 1
        self.misses += is_missed
        found = estimator.valuation()
        self.stated += found.sequence is not None
        for name, each in found.estimates.items():
            if each.interval is not None:
                is_held = each.interval.low <= self.truth <= each.interval.high
                self.held[name] = self.held.get(name, 0) + is_held

    def report(self) -> str:
        shares = {name: round(held / self.stated, 4) for name, held in sorted(self.held.items())}
        return (
            f"{self.scenario.name}: {self.logs} logs of {self.scenario.rounds} rounds, intervals"
            f" stated for {self.stated}; held {shares}; sequence ever missed {self.misses}"
        )


def taken(scenario: Scenario, logs: int) -> Hits:
    hits = Hits(scenario)
    for seed in range(logs):
        hits.take(seed)
    return hits


def check(hits: Hits, least: float, most: float) -> None:
    assert hits.stated >= 0.95 * hits.logs, hits.report()
    assert ("ips" in hits.held) is hits.scenario.has_bound
    for name in hits.held:
        assert hits.held[name] / hits.stated >= least, (name, hits.report())
    assert hits.misses / hits.logs <= most, hits.report()


@pytest.mark.study
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_intervals_hold_in_2000_logs(scenario: Scenario, capsys: pytest.CaptureFixture[str]):
    hits = taken(scenario, FULL)
    with capsys.disabled():
        sys.stdout.write(f"\n{hits.report()}\n")
    check(hits, least=0.94, most=0.05)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", AT_DEFAULT, ids=lambda scenario: scenario.name)
def test_intervals_hold_at_the_default_exploration(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
):
    hits = taken(scenario, LOGS_AT_DEFAULT)
    with capsys.disabled():
        sys.stdout.write(f"\n{hits.report()}\n")
    check(hits, least=0.94, most=0.05)


@pytest.mark.parametrize("scenario", QUICKLY, ids=lambda scenario: scenario.name)
def test_intervals_hold_in_a_few_logs(scenario: Scenario):
    # 60 logs: fewer than 51 hits have a probability below 0.1 % where the coverage is 94 %.
    check(taken(scenario, QUICK), least=0.85, most=0.1)


def test_without_the_weights_the_intervals_miss():
    """The mutant that forgets 1/p: the same check fails on it."""
    hits = Hits(SCENARIOS[5])
    for seed in range(20):
        hits.take(seed, propensities=np.ones(SCENARIOS[5].rounds))
    with pytest.raises(AssertionError):
        check(hits, least=0.85, most=0.1)


def test_the_candidates_value_is_exact():
    world = SmallWorld(3, 10)
    rng = np.random.default_rng(0)
    policy = world.greedy()
    seen = rng.integers(CONTEXTS, size=200_000)
    mean = (policy[seen] * world.expected[seen]).sum(axis=1).mean()
    assert world.value(policy) == pytest.approx(mean, abs=0.005)
