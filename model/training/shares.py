"""Class balance: how much each arm's share differs between the domains.

Aligning the marginals of two domains that differ in class balance forces target classes onto wrong
source classes. Weighing the source by w_j = (target share of arm j) / (source share of arm j)
makes the two marginals comparable.
"""

import torch
from torch import Tensor

_LIMIT = 10.0
_TEMPERATURE = 0.05


def best_arm_odds(predicted: Tensor) -> Tensor:
    """How likely each arm is the best one, from predicted rewards (n, K) that lie near [0, 1].

    Sharp, since graded rewards of good and best arms differ by little.
    """
    return (predicted / _TEMPERATURE).softmax(dim=1)


def share_ratio(
    source: Tensor, target: Tensor, pull: float = 0.05, limit: float = _LIMIT
) -> Tensor:
    """w (K,) from predicted arm probabilities on the source (n, K) and the target (m, K).

    Solves C·w = μ, with C = E_S[p pᵀ] the soft confusion matrix and μ = E_T[p], by least squares
    pulled towards w = 1; then scaled so that the expected source weight is 1.
    """
    ones = torch.ones(source.shape[1], dtype=torch.float64, device=source.device)
    p, q = source.double(), target.double()
    confusion = p.T @ p / len(p)
    share = p.mean(dim=0).clamp_min(1e-6)
    # Scaling by the source shares makes the pull equally strong for rare and frequent arms.
    system = confusion / share
    gap = q.mean(dim=0) - confusion @ ones
    normal = system.T @ system + pull * torch.eye(len(ones), dtype=torch.float64, device=p.device)
    weights = (ones + torch.linalg.solve(normal, system.T @ gap) / share).clamp(0.0, limit)
    scaled: Tensor = weights / (share @ weights).clamp_min(1e-12)
    return scaled.float()


def share_factor(source: Tensor, target: Tensor) -> Tensor:
    """What to multiply target probabilities by so that their mean comes near the source's, (K,).

    From arm probabilities on the source (n, K) and on the target (m, K).
    """
    factor: Tensor = source.mean(dim=0) / target.mean(dim=0).clamp_min(1e-6)
    return factor.clamp(1 / _LIMIT, _LIMIT)
