"""The terms of the training objective, each a pure function with its formula.

Shapes: n rounds or contexts, K arms, T ensemble members. Every term is a mean over its batch. Terms of
rounds map (n,) to one value, or (n, T) to one value for each member.
"""

import torch
from torch import Tensor
from torch.nn import functional

_FLOOR = 1e-6  # keeps logarithms and quotients of probabilities finite
_TEMPERATURE = 0.05  # of predicted rewards, for the probability that an arm is best
_LARGEST_FACTOR = 10.0  # limit on a teacher's factor: rare arms have uncertain priors
_RAMP_STEEPNESS = 10.0  # λ rises as in DANN (Ganin 2016)


def squared_error(predicted: Tensor, rewards: Tensor) -> Tensor:
    """L_RS of the paper: mean (θᵀφ(x_a) − r)² over the chosen arms."""
    return (predicted - rewards).square().mean(dim=0)


def bandit_likelihood(probabilities: Tensor, rewards: Tensor) -> Tensor:
    """L_RS through a head: −mean [r·log p_a + (1 − r)·log(1 − p_a)] of the chosen arms.

    Exact for rewards in {0, 1}, and a proper score for the mean of graded ones.
    """
    p = probabilities.clamp(_FLOOR, 1 - _FLOOR)
    return -(rewards * p.log() + (1 - rewards) * (-p).log1p()).mean(dim=0)


def regression_error(predicted: Tensor, rewards: Tensor) -> Tensor:
    """L_err ("R"): mean |r − prediction| of the chosen arms."""
    return (rewards - predicted).abs().mean(dim=0)


def predicted_reward(target_best: Tensor, source_chosen: Tensor, rewards: Tensor) -> Tensor:
    """L_reg ("P"): mean |prediction of the target's best arm| + mean (1 − r)·|prediction of the source's|.

    (1 − r) approximates 1[â ≠ a*] and is exact for exclusive rewards.
    """
    source = ((1 - rewards) * source_chosen.abs()).mean(dim=0)
    return source + target_best.abs().mean(dim=0) if len(target_best) else source


def divergence(source_logits: Tensor, target_logits: Tensor) -> Tensor:
    """L_div ("D"): the domain cross-entropy ½·[mean softplus(g_S) + mean softplus(−g_T)].

    g (n, T) > 0 means target.
    """
    # A product instead of a mean: it rounds as in earlier builds, so that their logs replay bit for bit.
    even = source_logits.new_full(source_logits.shape[:1], 1 / len(source_logits))
    source = (even @ functional.softplus(source_logits)).mean()
    return 0.5 * (source + functional.softplus(-target_logits).mean())


def consistency(student_logits: Tensor, teacher: Tensor, confidence_floor: float) -> Tensor:
    """Cross-entropy of the student on one augmentation against the teacher's arm on another.

    `student_logits` (n, T, K), `teacher` (n, K) probabilities; rows with a best teacher probability
    below the floor do not count.
    """
    confidence, arms = teacher.max(dim=1)
    taught = arms[:, None].expand(student_logits.shape[:2])
    loss = functional.cross_entropy(student_logits.transpose(1, 2), taught, reduction="none")
    return (loss * (confidence >= confidence_floor)[:, None]).mean()


def best_arm_probabilities(predicted: Tensor) -> Tensor:
    """The probability that each arm is best, (n, K), from predicted rewards (n, K) near [0, 1].

    The softmax is sharp, because graded rewards of good and best arms differ little.
    """
    return (predicted / _TEMPERATURE).softmax(dim=1)


def arm_prior_factor(source: Tensor, target: Tensor) -> Tensor:
    """The factor (K,) that brings the mean of target probabilities near the source's arm prior.

    The inputs are arm probabilities on the source (n, K) and on the target (m, K).
    """
    factor: Tensor = source.mean(dim=0) / target.mean(dim=0).clamp_min(_FLOOR)
    return factor.clamp(1 / _LARGEST_FACTOR, _LARGEST_FACTOR)


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, values: Tensor, strength: Tensor
    ) -> Tensor:
        ctx.save_for_backward(strength)
        return values.view_as(values)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor, None]:
        (strength,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return -strength * gradients[0], None


def reverse_gradient(values: Tensor, strength: Tensor) -> Tensor:
    """The values unchanged; their gradient times −strength (λ)."""
    reversed_: Tensor = _Reverse.apply(values, strength)  # type: ignore[no-untyped-call]
    return reversed_


def ramped(weight: float, episode: int, ramp_episodes: int) -> float:
    """λ at an episode: weight·(2/(1 + e^(−10p)) − 1) with p = episode/ramp, and weight after it."""
    if ramp_episodes == 0:
        return weight
    progress = min(1.0, episode / ramp_episodes)
    return weight * (
        2.0 / (1.0 + float(torch.exp(torch.tensor(-_RAMP_STEEPNESS * progress)))) - 1.0
    )
