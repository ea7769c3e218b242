import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from model.training import losses

REWARDS = torch.tensor([0.0, 1.0, 1.0, 0.3], dtype=torch.float64)


def inputs(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """float64 values well away from the kink at 0."""
    values = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    spread = low + (high - low) * values
    return torch.where(spread.abs() < 0.05, 0.05, spread).requires_grad_()


def test_gradient_of_squared_error_is_that_of_finite_differences():
    assert gradcheck(lambda p: losses.squared_error(p, REWARDS), inputs(4))


def test_gradient_of_bandit_likelihood_is_that_of_finite_differences():
    assert gradcheck(lambda p: losses.bandit_likelihood(p, REWARDS), inputs(4, low=0.1, high=0.9))


def test_gradient_of_regression_error_is_that_of_finite_differences():
    assert gradcheck(lambda p: losses.regression_error(p, REWARDS), inputs(4, low=1.1, high=2.0))
    assert gradcheck(lambda p: losses.regression_error(p, REWARDS), inputs(4, low=-2.0, high=-0.1))


def test_gradient_of_predicted_reward_is_that_of_finite_differences():
    assert gradcheck(
        lambda t, s: losses.predicted_reward(t, s, REWARDS), (inputs(5), inputs(4, seed=1))
    )


def test_gradient_of_divergence_is_that_of_finite_differences():
    logits = inputs(4, low=-3, high=3), inputs(6, low=-3, high=3, seed=1)
    assert gradcheck(losses.divergence, logits)


def test_gradient_of_consistency_is_that_of_finite_differences():
    teacher = (6 * inputs(4, 3, seed=1)).softmax(1).detach()
    assert (teacher.amax(1) >= 0.6).any()
    assert (teacher.amax(1) < 0.6).any()
    assert gradcheck(lambda s: losses.consistency(s, teacher, 0.6), inputs(4, 2, 3, low=-3, high=3))


def test_gradient_reversal_keeps_values_and_flips_the_gradient():
    values = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    reversed_ = losses.reverse_gradient(values, torch.tensor(0.5))
    assert torch.equal(reversed_, values)
    (reversed_ * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-0.5, -5.0, -50.0]))


def test_gradient_reversal_leaves_parameters_behind_it_alone():
    weight = torch.tensor([2.0], requires_grad=True)
    (weight * losses.reverse_gradient(torch.tensor([3.0]), torch.tensor(1.0))).sum().backward()
    torch.testing.assert_close(weight.grad, torch.tensor([3.0]))


def test_strength_zero_stops_the_gradient():
    values = torch.tensor([1.0], requires_grad=True)
    losses.reverse_gradient(values, torch.tensor(0.0)).sum().backward()
    assert values.grad == 0


def test_squared_error_by_hand():
    assert losses.squared_error(torch.tensor([1.0, 0.5]), torch.tensor([0.0, 1.0])) == 0.625


def test_bandit_likelihood_by_hand():
    loss = losses.bandit_likelihood(torch.tensor([0.8, 0.8]), torch.tensor([1.0, 0.0]))
    assert float(loss) == pytest.approx(-(math.log(0.8) + math.log(0.2)) / 2, rel=1e-6)


def test_bandit_likelihood_of_a_graded_reward_is_least_at_that_reward():
    grid = torch.linspace(0.05, 0.95, 19)
    values = [float(losses.bandit_likelihood(p[None], torch.tensor([0.3]))) for p in grid]
    assert float(grid[values.index(min(values))]) == pytest.approx(0.3)


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_bandit_likelihood_stays_finite_at_certainty(probability, reward):
    p = torch.tensor([probability], requires_grad=True)
    loss = losses.bandit_likelihood(p, torch.tensor([reward]))
    loss.backward()
    assert torch.isfinite(loss)
    assert p.grad is not None
    assert torch.isfinite(p.grad).all()


def test_regression_error_by_hand():
    assert losses.regression_error(torch.tensor([1.0, 0.5]), torch.tensor([0.0, 1.0])) == 0.75


def test_predicted_reward_by_hand():
    target, source = torch.tensor([0.5, -0.7]), torch.tensor([0.4, 0.8])
    loss = losses.predicted_reward(target, source, torch.tensor([1.0, 0.0]))
    assert float(loss) == pytest.approx(0.6 + 0.4)


def test_predicted_reward_without_target_contexts_is_that_of_the_source():
    loss = losses.predicted_reward(torch.zeros(0), torch.tensor([0.4]), torch.tensor([0.0]))
    assert float(loss) == pytest.approx(0.4)


def test_divergence_of_a_clueless_discriminator_is_log_two():
    loss = losses.divergence(torch.zeros(3), torch.zeros(5))
    assert float(loss) == pytest.approx(math.log(2))


def test_divergence_falls_when_source_logits_fall_and_target_logits_rise():
    low, high = -torch.ones(3), torch.ones(3)
    assert losses.divergence(low, high) < losses.divergence(high, low)


def test_consistency_ignores_views_the_teacher_is_unsure_of():
    student = torch.zeros(2, 1, 2)
    teacher = torch.tensor([[0.95, 0.05], [0.6, 0.4]])
    assert float(losses.consistency(student, teacher, 0.9)) == pytest.approx(math.log(2) / 2)
    assert losses.consistency(student, teacher, 0.99) == 0


def test_strength_rises_from_zero_to_its_weight():
    steps = [losses.ramped(2.0, episode, 10) for episode in range(15)]
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[5] == pytest.approx(2.0 * (2 / (1 + math.exp(-5)) - 1), rel=1e-6)
    assert steps[-1] == pytest.approx(2.0, rel=1e-4)


def test_ramp_of_zero_episodes_is_full_strength_at_once():
    assert losses.ramped(2.0, 0, 0) == 2.0


def test_best_arms_follow_the_predicted_rewards():
    found = losses.best_arm_probabilities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    np.testing.assert_allclose(found, [[1.0, 0.0], [0.5, 0.5]], atol=1e-4)


def test_factor_brings_the_mean_to_the_arm_prior_of_the_source():
    target = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    factor = losses.arm_prior_factor(torch.full((4, 2), 0.5), target)
    np.testing.assert_allclose(target.mean(dim=0) * factor, [0.5, 0.5], atol=1e-6)


def test_factor_of_an_arm_that_is_never_predicted_is_bounded():
    assert torch.isfinite(losses.arm_prior_factor(torch.eye(2), torch.tensor([[1.0, 0.0]]))).all()
