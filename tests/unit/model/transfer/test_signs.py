"""The signs of a judgement: contexts far from the source, skill on the source, arms that never paid."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.learner import Learner
from model.rounds import Doubles
from model.transfer.report import MOST_SKILL, RAW_SIZE, JudgingJob, _skill
from tests.support.builders import make_rounds, small_config, teach

COUNT = 400


@pytest.fixture(scope="module")
def job() -> JudgingJob:
    config = small_config(holdout_share=0.5, rebuild_window=200, reservoir_size=200)
    learner = Learner(config, seed=1)
    teach(learner, make_rounds(config, 160))
    found = learner.judging()
    assert found is not None
    return found


def far_share(job: JudgingJob, source: Doubles, target: Doubles) -> float:
    known, asked = (torch.from_numpy(each.astype(np.float32)) for each in (source, target))
    return replace(job, source=known, target=asked)._far_share()


def drawn(seed: int, shape: tuple[int, ...]) -> Doubles:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.fixture(params=["as they are", "projected"])
def size(request: pytest.FixtureRequest, job: JudgingJob) -> int:
    return int(job.target.shape[1]) if request.param == "as they are" else 2 * RAW_SIZE


def test_contexts_of_the_same_kind_are_near(job: JudgingJob, size: int):
    assert far_share(job, drawn(0, (COUNT, size)), drawn(1, (COUNT, size))) < 0.12


def test_a_new_kind_of_context_is_far_by_its_share(job: JudgingJob, size: int):
    target = drawn(1, (COUNT, size))
    target[: COUNT // 4] += 20
    assert far_share(job, drawn(0, (COUNT, size)), target) == pytest.approx(0.29, abs=0.06)


def test_what_never_varied_in_the_source_makes_nothing_far(job: JudgingJob, size: int):
    source, target = drawn(0, (COUNT, size)), drawn(1, (COUNT, size))
    source[:, 0], target[:, 0] = 1.0, 50.0
    assert far_share(job, source, target) < 0.12


def test_the_same_subjects_again_are_near(job: JudgingJob, size: int):
    """Repeats of a context are no evidence of how close different ones lie."""
    subjects = drawn(0, (COUNT // 4, size))
    repeated = np.tile(subjects, (4, 1))
    assert far_share(job, repeated, drawn(1, (COUNT, size))) < 0.2


def test_skill_is_rank_correlation_in_standard_errors():
    predicted = np.arange(101.0)
    assert _skill(predicted, predicted**3) == pytest.approx(10.0)
    assert _skill(predicted, -predicted) == pytest.approx(-10.0)
    noise = np.random.default_rng(0).random((200, 101))
    assert np.std([_skill(predicted, each) for each in noise]) == pytest.approx(1.0, abs=0.15)


def test_few_wrong_decisions_still_show_skill():
    rewards = np.ones(500)
    rewards[:5] = 0.0
    assert _skill(np.arange(500.0), rewards) > 3


@pytest.mark.parametrize(
    ("predicted", "rewards", "expected"),
    [
        (np.arange(5.0), np.ones(5), MOST_SKILL),
        (np.arange(5.0), np.zeros(5), 0.0),
        (np.ones(5), np.arange(5.0), 0.0),
        (np.ones(1), np.zeros(1), 0.0),
    ],
    ids=["all paid", "none paid", "equal predictions", "one round"],
)
def test_what_cannot_be_ordered(predicted: Doubles, rewards: Doubles, expected: float):
    assert _skill(predicted, rewards) == expected


def test_an_arm_that_never_paid_is_named():
    config = small_config(holdout_share=0.5, rebuild_window=200, reservoir_size=200)
    learner = Learner(config, seed=1)
    teach(
        learner,
        [replace(each, reward=each.reward * (each.arm != 1)) for each in make_rounds(config, 160)],
    )
    found = learner.judging(["low", "mid", "high"])
    assert found is not None
    assert found.unpaid_arms == ("mid",)
    assert "the source never paid arm mid" in found.run().verdict.reasons
