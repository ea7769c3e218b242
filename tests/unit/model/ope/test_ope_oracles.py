"""Our estimators against obp, vw-estimators and confseq on the same logs.

obp and confseq cannot be installed beside us: what they say is stored (`tests/oracles`).
vw-estimators is installed and asked again on larger logs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.bandits import clopper_pearson as their_clopper_pearson, cressieread, ips, snips
from scipy import stats

from model.ope.beta import beta_cdf, beta_quantile, f_quantile
from model.ope.estimates import EvaluationOptions, ValueEstimator
from model.ope.intervals import clopper_pearson, cressie_read
from model.ope.sequence import ValueSequence
from tests.oracles.make_references import SWITCH
from tests.support.ope import logged_rounds

REFERENCES = json.loads((Path(__file__).parents[3] / "oracles" / "references.json").read_text())
BY_NAME = [pytest.param(each, id=each["log"]["name"]) for each in REFERENCES]

Log = dict[str, Any]


def estimated_by(log: Log, batch: int = 1000, **options: Any) -> ValueEstimator:
    """The log, in batches of this many rounds."""
    estimator = ValueEstimator(EvaluationOptions(**options))
    policy, predicted = np.array(log["policy"]), np.array(log["predicted"])
    rounds = logged_rounds(log["arms"], log["rewards"], np.array(log["logger"]))
    for number, part in enumerate(rounds.parts(batch)):
        rows = slice(number * batch, (number + 1) * batch)
        estimator.add(part, policy[rows], predicted[rows])
    return estimator


def weights_of(log: Log) -> np.ndarray:
    rows = np.arange(len(log["arms"]))
    policy, logger = np.array(log["policy"]), np.array(log["logger"])
    return np.asarray(policy[rows, log["arms"]] / logger[rows, log["arms"]])


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("reference", BY_NAME)
def test_points_equal_obp(reference: Log, batch: int):
    found = estimated_by(reference["log"], batch, switch=SWITCH).valuation().estimates
    for name, value in reference["expected"]["points"].items():
        ours = found[name].value
        if np.isnan(value):  # 0/0 of a log that never chose what the policy would
            assert ours is None
        else:
            assert ours == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("reference", BY_NAME)
def test_intervals_equal_vw_estimators(reference: Log):
    log, expected = reference["log"], reference["expected"]["intervals"]
    sums = estimated_by(log).moments
    largest = float(weights_of(log).max())
    found = {
        "clopper_pearson": clopper_pearson(sums.y / largest, sums.n / largest, 0.95),
        "cressie_read": cressie_read(sums, 0.95),
        "cressie_read_bounded": cressie_read(sums, 0.95, log["max_weight"]),
    }
    for name, interval in found.items():
        assert list(interval) == pytest.approx(expected[name], abs=1e-6), name


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("reference", BY_NAME)
def test_the_sequence_equals_confseq_at_every_round(reference: Log, batch: int):
    log, expected = reference["log"], reference["expected"]["sequence"]
    weights, rewards = weights_of(log), np.array(log["rewards"])
    for names, bound in ((("low", "high"), log["max_weight"]), (("free_low", "free_high"), None)):
        sequence = ValueSequence(0.95, bound)
        ends = [
            sequence.extend(weights[start : start + batch], rewards[start : start + batch])
            for start in range(0, len(weights), batch)
        ]
        for side, name in enumerate(names):
            ours = np.concatenate([each[side] for each in ends])
            assert ours == pytest.approx(np.array(expected[name]), abs=1e-6), name


@pytest.mark.parametrize("seed", range(20))
def test_a_random_log_gives_what_vw_estimators_give(seed: int):
    rng = np.random.default_rng(seed)
    n, arm_count = int(rng.integers(2, 2000)), int(rng.integers(2, 12))
    logger = rng.dirichlet(np.ones(arm_count), size=n) * 0.9 + 0.1 / arm_count
    policy = rng.dirichlet(np.ones(arm_count), size=n)
    arms = np.array([rng.choice(arm_count, p=row) for row in logger])
    rewards = rng.random(n) * (rng.random(n) < 0.3)
    theirs = (ips.Estimator(), snips.Estimator())
    intervals = (their_clopper_pearson.Interval(), cressieread.Interval())
    for row, arm in enumerate(arms):
        given = float(logger[row, arm]), float(rewards[row]), float(policy[row, arm])
        for each in (*theirs, *intervals):
            each.add_example(*given)
    estimator = ValueEstimator()
    rounds = logged_rounds(arms, rewards, logger)
    estimator.add(rounds, policy, np.zeros_like(policy))
    found = estimator.valuation().estimates
    for name, their in zip(("ips", "snips"), theirs, strict=True):
        assert found[name].value == pytest.approx(their.get(), abs=1e-9)
    if estimator.support().effective_rounds >= 30:
        stated = found["snips"].interval
        assert stated is not None
        assert list(stated) == pytest.approx(intervals[1].get(0.05), abs=1e-6)
    largest, sums = estimator.support().max_weight, estimator.moments
    binomial = clopper_pearson(sums.y / largest, sums.n / largest, 0.95)
    assert list(binomial) == pytest.approx(intervals[0].get(0.05), abs=1e-6)


@pytest.mark.parametrize("a", [0.3, 1.0, 5.0, 50.0, 5e3, 1e6])
@pytest.mark.parametrize("b", [0.5, 2.0, 30.0, 4e3, 1e6])
def test_the_beta_distribution_is_scipys(a: float, b: float):
    for probability in (1e-4, 0.025, 0.5, 0.975, 0.999):
        quantile = beta_quantile(probability, a, b)
        assert quantile == pytest.approx(stats.beta.ppf(probability, a, b), abs=1e-12)
        assert beta_cdf(quantile, a, b) == pytest.approx(probability, abs=1e-6)
    assert (beta_cdf(0.0, a, b), beta_cdf(1.0, a, b)) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 10, 1000, 10**6])
def test_the_f_quantile_is_scipys(n: int):
    assert f_quantile(0.95, n) == pytest.approx(stats.f.isf(0.05, 1, n), rel=1e-9)
