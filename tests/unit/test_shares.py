import numpy as np
import torch

from model.training.shares import arm_prior_factor, best_arm_probabilities


def test_odds_follow_the_predicted_rewards():
    odds = best_arm_probabilities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    np.testing.assert_allclose(odds, [[1.0, 0.0], [0.5, 0.5]], atol=1e-4)


def test_factor_brings_the_mean_to_the_shares_of_the_source():
    target = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    factor = arm_prior_factor(torch.full((4, 2), 0.5), target)
    np.testing.assert_allclose(target.mean(dim=0) * factor, [0.5, 0.5], atol=1e-6)


def test_factor_of_an_arm_that_is_never_predicted_is_bounded():
    assert torch.isfinite(arm_prior_factor(torch.eye(2), torch.tensor([[1.0, 0.0]]))).all()
