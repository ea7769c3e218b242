from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from model.training.shares import best_arm_odds, share_factor, share_ratio


def predictions(
    shares: Sequence[float], sharpness: float, count: int = 4000, seed: int = 0
) -> Tensor:
    """Probabilities of a classifier that leans towards the true class of each row."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(len(shares), size=count, p=shares)
    logits = rng.standard_normal((count, len(shares)))
    logits[np.arange(count), classes] += sharpness
    return torch.from_numpy(logits).softmax(dim=1)


@pytest.mark.parametrize("target", [(0.2, 0.3, 0.5), (1 / 3, 1 / 3, 1 / 3), (0.6, 0.3, 0.1)])
def test_known_ratio_of_a_sharp_classifier_is_recovered(target):
    source = (0.5, 0.3, 0.2)
    ratio = share_ratio(predictions(source, 9.0), predictions(target, 9.0, seed=1), pull=1e-4)
    np.testing.assert_allclose(ratio, np.divide(target, source), atol=0.15)


def test_equal_shares_give_equal_weights():
    p, q = predictions((0.4, 0.4, 0.2), 5.0), predictions((0.4, 0.4, 0.2), 5.0, seed=1)
    np.testing.assert_allclose(share_ratio(p, q), 1.0, atol=0.1)


def test_default_pull_keeps_the_direction_of_the_ratio():
    p, q = predictions((0.5, 0.3, 0.2), 9.0), predictions((0.2, 0.3, 0.5), 9.0, seed=1)
    ratio = share_ratio(p, q)
    assert ratio[0] < 0.7
    assert ratio[2] > 1.5


def test_strong_pull_gives_even_weights():
    p, q = predictions((0.5, 0.3, 0.2), 9.0), predictions((0.2, 0.3, 0.5), 9.0, seed=1)
    np.testing.assert_allclose(share_ratio(p, q, pull=1e6), 1.0, atol=1e-3)


def test_expected_source_weight_is_one():
    p, q = predictions((0.8, 0.1, 0.1), 2.0), predictions((0.1, 0.1, 0.8), 2.0, seed=1)
    ratio = share_ratio(p, q)
    assert float(p.mean(0).float() @ ratio) == pytest.approx(1.0, abs=1e-5)
    assert (ratio >= 0).all()


def test_clueless_classifier_gives_even_weights():
    even = torch.full((50, 3), 1 / 3)
    np.testing.assert_allclose(share_ratio(even, even), 1.0, atol=1e-6)


def test_arm_that_is_never_predicted_gives_finite_weights():
    never = torch.tensor([[0.5, 0.5, 0.0]]).repeat(20, 1)
    assert torch.isfinite(share_ratio(never, never)).all()


def test_known_ratio_of_an_unsure_but_calibrated_classifier_is_recovered():
    # It names the right class in 70 % of the rows; the target's shares are 0.2, 0.3 and 0.5.
    posterior = torch.full((3, 3), 0.15) + 0.55 * torch.eye(3)
    source = posterior.repeat_interleave(100, dim=0)
    target = posterior.repeat_interleave(torch.tensor([260, 315, 425]), dim=0)
    np.testing.assert_allclose(share_ratio(source, target, pull=1e-9), [0.6, 0.9, 1.5], atol=1e-3)


def test_odds_follow_the_predicted_rewards():
    odds = best_arm_odds(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    np.testing.assert_allclose(odds, [[1.0, 0.0], [0.5, 0.5]], atol=1e-4)


def test_factor_brings_the_mean_to_the_shares_of_the_source():
    target = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    factor = share_factor(torch.full((4, 2), 0.5), target)
    np.testing.assert_allclose(target.mean(dim=0) * factor, [0.5, 0.5], atol=1e-6)


def test_factor_of_an_arm_that_is_never_predicted_is_bounded():
    assert torch.isfinite(share_factor(torch.eye(2), torch.tensor([[1.0, 0.0]]))).all()
