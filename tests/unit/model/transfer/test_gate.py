import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import BanditConfig
from model.memory import RoundBatch
from model.rounds import UNKNOWN_PROPENSITY, Domain, Doubles
from model.transfer.diagnostics import effective_rank
from model.transfer.gate import Verdict, held_out_rewards, is_finite, judge, refused
from tests.support.builders import beyond_bounds, poisoned, small_config

COUNT = 63
CONFIG = small_config(gate_margin=0.05, gate_rank=1.5)
GOOD_THETA = np.eye(3)


def held_out(count: int = COUNT) -> tuple[RoundBatch, Tensor]:
    """Three classes, one an arm; every class meets every arm once in three rounds."""
    classes, arms = np.arange(count) % 3, (np.arange(count) // 3) % 3
    latents = torch.eye(3)[torch.from_numpy(classes)]
    rounds = RoundBatch(
        contexts=latents,
        references=np.arange(count),
        arms=arms,
        rewards=(classes == arms).astype(np.float64),
        propensities=np.full(count, 1 / 3),
        is_target=np.zeros(count, dtype=np.bool_),
        is_held_out=np.ones(count, dtype=np.bool_),
    )
    return rounds, latents


def verdict_of(
    latents: Tensor, theta: Doubles, config: BanditConfig = CONFIG, count: int = COUNT
) -> Verdict:
    rounds, good = held_out(count)
    rank = effective_rank(latents)
    return judge(rounds, (latents[:count], theta), (good, GOOD_THETA), rank, config)


def test_equally_good_encoder_is_accepted():
    verdict = verdict_of(held_out()[1], GOOD_THETA)
    assert verdict.is_accepted
    assert verdict.reasons == ()
    assert verdict.reward == verdict.reward_before == pytest.approx(1.0)
    assert verdict.effective_rank == pytest.approx(3.0)


def test_collapsed_encoder_is_refused_by_its_effective_rank():
    verdict = verdict_of(torch.tensor([[1.0, 0.0, 0.0]]).repeat(COUNT, 1), GOOD_THETA)
    assert not verdict.is_accepted
    assert "effective rank 1.000 below 1.5" in verdict.reasons[0]


def test_encoder_that_lost_reward_is_refused_with_the_figures():
    verdict = verdict_of(held_out()[1], np.roll(GOOD_THETA, 1, axis=0))
    assert not verdict.is_accepted
    assert (verdict.reward or 0.0) < (verdict.reward_before or 0.0)
    assert "held-out source reward fell" in verdict.reasons[0]


def test_loss_inside_the_margin_is_accepted():
    wrong = np.roll(GOOD_THETA, 1, axis=0)
    assert verdict_of(held_out()[1], wrong, CONFIG.changed(gate_margin=1.0)).is_accepted


def test_few_rounds_forgive_more_than_many():
    few = verdict_of(held_out()[1], np.roll(GOOD_THETA, 1, axis=0), count=3)
    assert "more than 0.339 over 3 rounds" in few.reasons[0]
    many = verdict_of(held_out()[1], np.roll(GOOD_THETA, 1, axis=0))
    assert "more than 0.113 over 63 rounds" in many.reasons[0]


def test_no_held_out_round_at_all_is_accepted():
    rounds, latents = held_out()
    nothing = rounds.rows(np.zeros(COUNT, dtype=np.bool_))
    nobody = (latents[:0], GOOD_THETA)
    assert judge(nothing, nobody, nobody, 2.0, CONFIG).is_accepted


def test_explored_rewards_correct_a_wrong_reward_model():
    # Both encoders promise arm 0 everywhere; only a third of the rounds pay there.
    rounds, latents = held_out()
    boastful = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    after, before = held_out_rewards(rounds, (latents, boastful), (latents, boastful), False)
    assert after == before == pytest.approx(1 / 3)


def test_unknown_propensities_are_replaced_by_how_often_the_arm_was_chosen():
    rounds, latents = held_out()
    unknown = dataclasses.replace(rounds, propensities=np.full(COUNT, UNKNOWN_PROPENSITY))
    boastful = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    both = (latents, boastful), (latents, boastful)
    assert held_out_rewards(unknown, *both, False) == held_out_rewards(rounds, *both, False)
    half = dataclasses.replace(rounds, propensities=np.where(np.arange(COUNT) < 30, 0.5, 0.0))
    after, _ = held_out_rewards(half, *both, False)
    assert 1 / 3 < after < 2 / 3  # those that are known count as they are


def test_joint_model_is_judged_by_its_regression_error():
    rounds, latents = held_out()
    after, before = held_out_rewards(
        rounds, (latents, np.full((1, 3), 0.5)), (latents, np.zeros((1, 3))), True
    )
    assert after == pytest.approx(0.5)
    assert before == pytest.approx(2 / 3)


def test_rewards_beyond_their_range_do_not_win_an_argument():
    rounds, latents = held_out()
    huge = dataclasses.replace(rounds, rewards=np.where(rounds.arms == 1, 1e30, rounds.rewards))
    candidate = np.array([[0.0] * 3, [1.0] * 3, [0.0] * 3])  # arm 1 always
    verdict = judge(huge, (latents, candidate), (latents, GOOD_THETA), 3.0, CONFIG)
    assert not verdict.is_accepted


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_seen(value):
    assert not is_finite(torch.zeros(2), torch.tensor([0.0, value]))
    assert is_finite(torch.zeros(2), torch.zeros(1, dtype=torch.int64))


def test_verdict_is_plain_json():
    assert json.loads(json.dumps(refused("because").as_dict()))["reasons"] == ["because"]


def test_good_update_of_a_good_encoder_is_accepted(good_job):
    assert good_job.run().verdict.is_accepted


def test_diverging_training_is_refused(good_job):
    job = dataclasses.replace(good_job, config=beyond_bounds(good_job.config, learning_rate=1e3))
    verdict = job.run().verdict
    assert not verdict.is_accepted
    assert verdict.reasons


@pytest.mark.parametrize("learning_rate", [1e20, 1e38])
def test_training_that_leaves_float32_is_refused_as_diverged(good_job, learning_rate):
    config = beyond_bounds(good_job.config, learning_rate=learning_rate)
    job = dataclasses.replace(good_job, config=config)
    assert not job.run().verdict.is_accepted


@pytest.mark.parametrize(
    "poison", [{"contexts": 1e30}, {"rewards": 1e30}, {"contexts": 1e30, "rewards": 1e30}]
)
def test_training_on_a_poisoned_batch_is_refused(good_job, poison):
    verdict = poisoned(good_job, **poison).run().verdict
    assert not verdict.is_accepted
    assert verdict.reasons


def test_adaptation_too_strong_for_the_source_is_refused(good_job, world):
    shifted = dataclasses.replace(world, shift=2.0).draw(Domain.TARGET, 500, "far").contexts
    target = dataclasses.replace(good_job.data.target, contexts=torch.from_numpy(shifted))
    strong = good_job.config.changed(divergence_weight=1e4, divergence_ramp=0, steps_per_episode=64)
    data = dataclasses.replace(good_job.data, target=target)
    verdict = dataclasses.replace(good_job, data=data, config=strong).run().verdict
    assert not verdict.is_accepted
    assert "held-out source reward fell" in verdict.reasons[-1]


def test_candidate_that_is_not_finite_is_refused_as_diverged(good_job):
    poisoned_networks = good_job.networks.clone()
    with torch.no_grad():
        next(poisoned_networks.encoder.parameters()).fill_(float("nan"))
    verdict = dataclasses.replace(good_job, networks=poisoned_networks).run().verdict
    assert verdict.reasons == ("training diverged: parameters are not finite",)
