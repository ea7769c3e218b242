"""The density ratio of latents, ρ(z) = p_T(z) / p_S(z).

Two estimators: the odds of a neural discriminator, and those of a logistic regression on latents and
their squares, which is exact for normal distributions. Both are cross-fitted on two halves and scaled to
mean 1 over the source, as a density ratio has.
"""

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.encoders.first_weights import first_weights
from model.randomness import generator
from model.rounds import Doubles
from model.training.discriminator import Discriminator

_STEPS = 400
_SIZE, _RATE, _DECAY = 32, 3e-3, 1e-3  # a small, regularised network for a few hundred latents
_LOOK = 5  # steps between two evaluations of the held-out loss
_WORSE = 0.02  # a held-out loss this much above the best one ends the fit
_RIDGES = (0.1, 1.0, 10.0, 100.0)
_NEWTON_STEPS = 50
_CONVERGED = 1e-8  # largest change of a weight in the last step
_INTERCEPT_PENALTY = 1e-9  # keeps the system solvable
_FARTHEST = 30.0  # limit on log odds


def discriminator_ratio(source: Doubles, target: Doubles, seed: int) -> tuple[Doubles, float]:
    """ρ of each source latent (n,), and the discriminator's balanced held-out accuracy."""
    found = np.zeros(len(source))
    right = []
    for fold in (0, 1):
        fitted = _fitted_discriminator(source[fold::2], target[fold::2], seed)
        logits = _logits(fitted, source[1 - fold :: 2])
        found[1 - fold :: 2] = np.exp(logits)
        right.append((logits <= 0).mean() + (_logits(fitted, target[1 - fold :: 2]) > 0).mean())
    return scaled(found), float(np.mean(right)) / 2


def logistic_ratio(source: Doubles, target: Doubles, seed: int) -> Doubles:
    """ρ of each source latent by logistic regression on the latents and their squares, (n,)."""
    rng = generator(seed, "logistic ratio")
    source_order, target_order = rng.permutation(len(source)), rng.permutation(len(target))
    found = np.zeros(len(source))
    for fold in (0, 1):
        own, other = source_order[fold::2], source_order[1 - fold :: 2]
        weights = _chosen_logistic(_features(source[own]), _features(target[target_order[fold::2]]))
        found[other] = np.exp(np.clip(_features(source[other]) @ weights, -_FARTHEST, _FARTHEST))
    return scaled(found)


def scaled(ratios: Doubles) -> Doubles:
    """The ratios with mean 1 over the source."""
    mean = ratios.mean()
    return np.asarray(ratios / mean if mean > 0 else np.zeros_like(ratios))


def _fitted_discriminator(source: Doubles, target: Doubles, seed: int) -> Discriminator:
    """The discriminator at the step with the best loss on a held-out quarter.

    An overfitted discriminator has extreme odds. Training starts from even odds, which stay if no step
    is better.
    """
    s, t = torch.from_numpy(source).float(), torch.from_numpy(target).float()
    (s_fit, s_held), (t_fit, t_held) = _quartered(s), _quartered(t)
    fitted = _even_odds(source.shape[1], seed)
    optimiser = torch.optim.Adam(fitted.parameters(), lr=_RATE, weight_decay=_DECAY)
    best, least = copy.deepcopy(fitted), _domain_loss(fitted, s_held, t_held).item()
    for step in range(1, _STEPS + 1):
        optimiser.zero_grad()
        _domain_loss(fitted, s_fit, t_fit).backward()
        optimiser.step()
        if step % _LOOK == 0:
            with torch.no_grad():
                loss = _domain_loss(fitted, s_held, t_held).item()
            if loss < least:
                best, least = copy.deepcopy(fitted), loss
            elif loss > least + _WORSE:
                break
    return best


def _even_odds(size: int, seed: int) -> Discriminator:
    with first_weights(seed, "ratio"):
        made = Discriminator(size, hidden_size=_SIZE)
    with torch.no_grad():
        for parameter in list(made.parameters())[-2:]:  # the last layer's
            parameter.zero_()
    return made


def _domain_loss(fitted: Discriminator, source: Tensor, target: Tensor) -> Tensor:
    return functional.softplus(fitted(source)).mean() + functional.softplus(-fitted(target)).mean()


def _quartered(latents: Tensor) -> tuple[Tensor, Tensor]:
    is_held = torch.arange(len(latents)) % 4 == 3
    return latents[~is_held], latents[is_held]


def _logits(fitted: Discriminator, latents: Doubles) -> Doubles:
    with torch.no_grad():
        found: Doubles = fitted(torch.from_numpy(latents).float()).double().numpy()
    return found


def _features(latents: Doubles) -> Doubles:
    return np.concatenate([np.ones((len(latents), 1)), latents, latents**2], axis=1)


def _chosen_logistic(source: Doubles, target: Doubles) -> Doubles:
    """The weights (p,) for the ridge with the best loss on a held-out quarter."""
    held_out = [_logistic_loss(source, target, ridge) for ridge in _RIDGES]
    return _logistic(source, target, _RIDGES[int(np.argmin(held_out))])


def _logistic_loss(source: Doubles, target: Doubles, ridge: float) -> float:
    is_held = [np.arange(len(each)) % 4 == 3 for each in (source, target)]
    weights = _logistic(source[~is_held[0]], target[~is_held[1]], ridge)
    logits = source[is_held[0]] @ weights, target[is_held[1]] @ weights
    return float(np.logaddexp(0, logits[0]).mean() + np.logaddexp(0, -logits[1]).mean())


def _logistic(source: Doubles, target: Doubles, ridge: float) -> Doubles:
    """Newton's method; both domains have the same weight, and the intercept is not regularised."""
    features = np.concatenate([source, target])
    labels = np.repeat([0.0, 1.0], [len(source), len(target)])
    row_weights = np.repeat([0.5 / len(source), 0.5 / len(target)], [len(source), len(target)])
    penalty = np.full(features.shape[1], ridge / len(features))
    penalty[0] = _INTERCEPT_PENALTY
    weights = np.zeros(features.shape[1])
    for _ in range(_NEWTON_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(features @ weights, -_FARTHEST, _FARTHEST)))
        slope = features.T @ (row_weights * (chances - labels)) + penalty * weights
        curvature = row_weights * chances * (1.0 - chances)
        hessian = (features * curvature[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(hessian, slope)
        weights = weights - step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights
