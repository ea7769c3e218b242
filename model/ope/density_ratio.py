"""How much more probable a latent is in the target than in the source, ρ(z) = p_T(z) / p_S(z).

Two estimators that share nothing: a discriminator's odds, and uLSIF (Kanamori 2009), a least-squares
fit of Gaussian bumps to the ratio itself. Both predict each half of the source from a fit on the
other half, and both are scaled to mean 1 over the source, as a density ratio has.
"""

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.discriminator import Discriminator
from model.randomness import derived_seed, generator
from model.rounds import Doubles

_STEPS = 400
_LOOK = 5  # steps between two looks at what is held out
_WORSE = 0.02  # a held-out loss this much above the best one ends the fit
_CENTERS = 100
_WIDTHS = (0.5, 1.0, 2.0)
_RIDGES = (0.001, 0.01, 0.1, 1.0)


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


def least_squares_ratio(source: Doubles, target: Doubles, seed: int) -> Doubles:
    """ρ of each source latent by uLSIF, (n,)."""
    found = np.zeros(len(source))
    for fold in (0, 1):
        ratio = _LeastSquaresRatio.chosen(source[fold::2], target[fold::2], seed)
        found[1 - fold :: 2] = ratio(source[1 - fold :: 2])
    return scaled(found)


def scaled(ratios: Doubles) -> Doubles:
    """The ratios with mean 1 over the source."""
    mean = ratios.mean()
    return np.asarray(ratios / mean if mean > 0 else np.zeros_like(ratios))


def _fitted_discriminator(source: Doubles, target: Doubles, seed: int) -> Discriminator:
    """The discriminator at the step that did best on a quarter held out from it.

    Odds of an overfitted discriminator are extreme. It starts from even odds, which stand where
    nothing better is found.
    """
    s, t = torch.from_numpy(source).float(), torch.from_numpy(target).float()
    (s_fit, s_held), (t_fit, t_held) = _quartered(s), _quartered(t)
    fitted = _even_odds(source.shape[1], seed)
    optimiser = torch.optim.Adam(fitted.parameters(), lr=3e-3, weight_decay=1e-3)
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "ratio"))
        made = Discriminator(size, hidden_size=32)
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


class _LeastSquaresRatio:
    """ρ(z) = Σ_l α_l exp(−‖z − c_l‖² / 2σ²), α ≥ 0, fitted to minimise ½E_S[ρ²] − E_T[ρ]."""

    def __init__(self, centers: Doubles, width: float, weights: Doubles) -> None:
        self._centers = centers
        self._width = width
        self._weights = weights

    def __call__(self, latents: Doubles) -> Doubles:
        return np.asarray(_bumps(latents, self._centers, self._width) @ self._weights)

    @classmethod
    def chosen(cls, source: Doubles, target: Doubles, seed: int) -> "_LeastSquaresRatio":
        """The fit of the width and ridge that do best on rounds held out from it."""
        rng = generator(seed, "centers")
        picked = rng.permutation(len(target))[:_CENTERS]
        centers = target[picked]
        typical = float(np.median(_distances(centers, centers)[~np.eye(len(centers), dtype=bool)]))
        options = [(w * max(typical, 1e-6) ** 0.5, r) for w in _WIDTHS for r in _RIDGES]
        halves = (source[0::2], target[0::2]), (source[1::2], target[1::2])
        losses = [_held_out_loss(*halves, centers, *each) for each in options]
        width, ridge = options[int(np.argmin(losses))]
        return cls(centers, width, _fitted(source, target, centers, width, ridge))


def _held_out_loss(
    fit: tuple[Doubles, Doubles],
    judge: tuple[Doubles, Doubles],
    centers: Doubles,
    width: float,
    ridge: float,
) -> float:
    ratio = _LeastSquaresRatio(centers, width, _fitted(*fit, centers, width, ridge))
    return float(0.5 * (ratio(judge[0]) ** 2).mean() - ratio(judge[1]).mean())


def _fitted(
    source: Doubles, target: Doubles, centers: Doubles, width: float, ridge: float
) -> Doubles:
    bumps = _bumps(source, centers, width)
    second = bumps.T @ bumps / len(source)
    first = _bumps(target, centers, width).mean(axis=0)
    weights = np.linalg.solve(second + ridge * np.eye(len(centers)), first)
    return np.asarray(weights.clip(0.0))


def _bumps(latents: Doubles, centers: Doubles, width: float) -> Doubles:
    return np.asarray(np.exp(-_distances(latents, centers) / (2.0 * width**2)))


def _distances(first: Doubles, second: Doubles) -> Doubles:
    """Squared distances (n, m)."""
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2.0 * first @ second.T, 0.0))
