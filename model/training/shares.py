"""How much each arm's share differs between the domains."""

from torch import Tensor

_LIMIT = 10.0
_TEMPERATURE = 0.05


def best_arm_probabilities(predicted: Tensor) -> Tensor:
    """How likely each arm is the best one, from predicted rewards (n, K) that lie near [0, 1].

    Sharp, since graded rewards of good and best arms differ by little.
    """
    return (predicted / _TEMPERATURE).softmax(dim=1)


def arm_prior_factor(source: Tensor, target: Tensor) -> Tensor:
    """What to multiply target probabilities by so that their mean comes near the source's, (K,).

    From arm probabilities on the source (n, K) and on the target (m, K).
    """
    factor: Tensor = source.mean(dim=0) / target.mean(dim=0).clamp_min(1e-6)
    return factor.clamp(1 / _LIMIT, _LIMIT)
