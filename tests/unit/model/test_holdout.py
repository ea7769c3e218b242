"""Held out means held out: no held-out reward shapes what is judged by held-out rounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from model.config import BanditConfig
from model.learner import Learner
from model.memory import RoundBatch
from model.rounds import Domain, Doubles, RewardedRound, RoundBlock
from model.training.rebuild import encode_rounds
from model.transfer.verdict import Word
from tests.support.builders import calibrated_on, make_rounds, small_config, teach

Judged = tuple[Tensor, Doubles]

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "distilled": {"exclusive_rewards": True, "distil_head": True},
    "paper": {"objective": "paper", "statistics": "keep"},
    "per arm": {"context_kind": "per_arm"},
}


def config_of(variant: str = "plain", **changes: Any) -> BanditConfig:
    sizes = {"rebuild_window": 400, "reservoir_size": 200, "encoder": "mlp"}
    values = {"holdout": "contexts", "holdout_share": 0.5, **sizes, **VARIANTS[variant], **changes}
    return small_config(**values)


def taught(config: BanditConfig, rounds: list[RewardedRound]) -> Learner:
    learner = Learner(config, seed=7)
    teach(learner, rounds)
    return learner


def with_other_held_out_rewards(
    learner: Learner, rounds: list[RewardedRound]
) -> list[RewardedRound]:
    held = learner.window.batch().is_held_out
    assert 0 < held.sum() < len(rounds)
    return [
        replace(round_, reward=1.0 - round_.reward) if is_held else round_
        for round_, is_held in zip(rounds, held, strict=True)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_held_out_reward_shapes_encoder_judging_theta_or_calibration(variant: str):
    config = config_of(variant, gate_margin=1.0)
    rounds = make_rounds(config, 150)
    one = taught(config, rounds)
    other = taught(config, with_other_held_out_rewards(one, rounds))
    for name, value in one.networks.state_dict().items():
        np.testing.assert_array_equal(value, other.networks.state_dict()[name], err_msg=name)
    np.testing.assert_allclose(one._judging_theta, other._judging_theta, atol=1e-12)
    held_out, others = calibrated_on(one), calibrated_on(other)
    np.testing.assert_allclose(held_out.predicted, others.predicted, atol=1e-12)
    served = [each.statistics.factors().theta for each in (one, other)]
    assert np.abs(served[0] - served[1]).max() > 0.01  # the served θ learns from all rounds


def test_no_held_out_reward_shapes_the_gates_two_thetas(monkeypatch: pytest.MonkeyPatch):
    thetas: list[tuple[Doubles, Doubles]] = []

    def noted(held_out: RoundBatch, candidate: Judged, incumbent: Judged, *_: Any) -> Any:
        thetas.append((candidate[1], incumbent[1]))
        return 0.5, 0.5

    monkeypatch.setattr("model.transfer.gate.held_out_rewards", noted)
    config = config_of()
    rounds = make_rounds(config, 144)
    learner = taught(config, rounds)
    count = len(thetas)
    taught(config, with_other_held_out_rewards(learner, rounds))
    assert len(thetas) == 2 * count == 18
    for one, other in zip(thetas[:count], thetas[count:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_the_judging_theta_is_ridge_regression_on_the_other_rounds():
    config = config_of()
    learner = taught(config, make_rounds(config, 150))
    rounds = learner.window.batch().rows(~learner.window.batch().is_held_out)
    latents = encode_rounds(learner.networks, rounds).double().numpy()
    for arm in range(config.arm_count):
        Z, r = latents[rounds.arms == arm], rounds.rewards[rounds.arms == arm]
        expected = np.linalg.solve(config.ridge * np.eye(Z.shape[1]) + Z.T @ Z, Z.T @ r)
        np.testing.assert_allclose(learner._judging_theta[arm], expected, atol=1e-5)


def skill(seed: int, is_fixed: bool, holdout: str = "contexts") -> tuple[float, Word]:
    """The judgement of coin-flip rewards: fresh in each round, or fixed for a subject and an arm."""
    sizes: dict[str, Any] = {"latent_size": 32, "hidden_sizes": (32,), "episode_length": 100}
    config = config_of(holdout=holdout, holdout_share=0.3, steps_per_episode=8, **sizes)
    learner, rng = Learner(config, seed), np.random.default_rng(seed)
    subjects = rng.standard_normal((100, 4)).astype(np.float32)
    fixed = rng.integers(2, size=(100, 3))
    for start in range(0, 400, 100):
        chosen, arms = rng.integers(100, size=100), rng.integers(3, size=100)
        rewards = fixed[chosen, arms] if is_fixed else rng.integers(2, size=100)
        target = rng.standard_normal((100, 4)).astype(np.float32)
        learner.observe_contexts(range(start, start + 100), Domain.TARGET, target)
        learner.observe_block(
            RoundBlock(
                references=np.arange(start, start + 100),
                is_target=np.zeros(100, dtype=np.bool_),
                contexts=subjects[chosen],
                arms=arms,
                rewards=rewards.astype(np.float64),
                propensities=np.full(100, 1 / 3),
            )
        )
        learner.train()
    job = learner.judging()
    assert job is not None
    judgement = job.run()
    return judgement.signs.source_skill, judgement.verdict.word


@pytest.mark.parametrize("is_fixed", [False, True], ids=["fresh coins", "fixed coins"])
def test_coin_flips_are_not_learned(is_fixed: bool):
    found = [skill(seed, is_fixed) for seed in range(4)]
    assert abs(np.mean([standard_errors for standard_errors, _ in found])) < 1
    assert all(word is Word.DO_NOT_TRUST for _, word in found)


def test_recipes_that_hold_out_rounds_overrate_what_they_learned():
    standard_errors, _ = skill(0, True, "rounds")
    assert standard_errors > 1.6
