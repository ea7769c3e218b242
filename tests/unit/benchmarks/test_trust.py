"""The benchmark of the expected target reward: changed tasks, the table of runs."""

from typing import Any

import numpy as np
import pytest

from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from benchmarks.trust.summary import findings, spearman, table
from benchmarks.trust.variants import VARIANTS, altered

COUNT = 1000


@pytest.fixture
def task() -> TransferTask:
    rng = np.random.default_rng(0)
    domains = []
    for _ in range(2):
        best = rng.choice(3, COUNT, p=[0.5, 0.3, 0.2])
        contexts = (one_hot(best, 3) + 0.01 * rng.standard_normal((COUNT, 3))).astype(np.float32)
        domains.append((contexts, one_hot(best, 3)))
    return unsplit_task("made", ("a", "b", "c"), domains[0], domains[1])


def prior(rewards: Any) -> list[float]:
    return list(np.bincount(rewards.argmax(axis=1), minlength=3) / len(rewards))


@pytest.mark.parametrize(
    ("variant", "source", "target"), [("target 90 %", 0.4, 0.9), ("source 90 %", 0.9, 0.4)]
)
def test_one_arm_is_best_for_most_of_one_domain(
    task: TransferTask, variant: str, source: float, target: float
):
    found = altered(task, variant, 0)
    shares = [prior(rewards)[0] for rewards in (found.source_rewards, found.target_rewards)]
    assert shares == pytest.approx([source, target], abs=0.01)
    assert found.test_contexts is found.target_contexts
    assert (found.target_contexts.argmax(axis=1) == found.target_rewards.argmax(axis=1)).all()


def test_an_arm_that_is_absent_from_the_source_is_best_in_the_target(task: TransferTask):
    found = altered(task, "new arm", 0)
    assert prior(found.source_rewards)[1] == 0 < prior(found.target_rewards)[1]


def test_noise_says_nothing_of_the_best_arm(task: TransferTask):
    found = altered(task, "noise", 0)
    agrees = found.target_contexts.argmax(axis=1) == found.target_rewards.argmax(axis=1)
    assert agrees.mean() < 0.6
    one, other = (np.sort(each, axis=0) for each in (found.target_contexts, task.target_contexts))
    assert np.array_equal(one, other)


def test_a_variant_depends_on_its_seed_alone(task: TransferTask):
    for variant in VARIANTS:
        assert altered(task, variant, 1).equals(altered(task, variant, 1))
    assert not altered(task, "noise", 1).equals(altered(task, "noise", 2))


def run(earned: float, reward: float, word: str, **changes: Any) -> dict[str, Any]:
    verdict = {"word": word, "reasons": ["the source never paid arm a"]}
    judgement = {"expected": {"reward": reward, "lower": reward - 0.25}, "verdict": verdict}
    shared = {"dataset": "made:1", "variant": "plain", "method": "daband", "is_exclusive": True}
    return {**shared, "earned": earned, "best": 1.0, "auc": 0.7, "judgement": judgement, **changes}


def test_the_table_shows_errors_and_how_often_the_bound_holds():
    records = [run(0.9, 0.8, "aligned"), run(0.5, 0.6, "weak"), run(0.2, 0.5, "weak")]
    row = table(records).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:9] == ["3", "0.533", "0.633", "0.167", "1.00", "67%"]
    assert cells[-3:] == ["1", "2", "0"]


def test_what_must_not_happen_is_counted():
    records = [
        run(0.95, 0.2, "do not trust"),
        run(0.1, 0.9, "aligned", variant="noise"),
        run(0.5, 0.5, "weak", variant="new arm"),
    ]
    untrusted, noise, absent = findings(records)
    assert untrusted.startswith("1 of 1 targets")
    assert noise.startswith("1 of 1 noise targets")
    assert absent.startswith("1 of 1 absent arms")


def test_ranks_are_compared_not_values():
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 100.0])) == pytest.approx(1.0)
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
