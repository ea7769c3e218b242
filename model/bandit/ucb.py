"""The linear scores of latents under all models at once: φᵀθ, α‖L⁻¹φ‖ and their sum."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from model.bandit.linucb import Factors
from model.encoders.arrays import Array, array_on, arrays_on
from model.rounds import Domain, Doubles, Floats

# From latents (n, d) to mean, bonus and UCB (n, M): three arrays, or one tensor (3, n, M) on a GPU.
LinearScores = Callable[[Array], Any]

log = logging.getLogger(__name__)


def linear_scores(
    factors: Factors, alpha: float, device: torch.device
) -> dict[Domain, LinearScores]:
    """The score function of each domain on this device."""
    source = target = _of_source(factors, alpha, device)
    if factors.own_target_theta is not None:
        target = _of_target(source, factors.own_target_theta, device)
    return {Domain.SOURCE: source, Domain.TARGET: target}


def _of_target(source: LinearScores, theta: Doubles, device: torch.device) -> LinearScores:
    """The target's own means with the source's bonus."""
    narrow = theta.T.astype(np.float32)
    weights: Array = narrow if device.type == "cpu" else array_on(device, narrow)

    def scores(latents: Array) -> tuple[Array, Array, Array]:
        mean, bonus = latents @ weights, source(latents)[1]
        return mean, bonus, mean + bonus

    return scores if device.type == "cpu" else lambda latents: torch.stack(scores(latents))


def _of_source(factors: Factors, alpha: float, device: torch.device) -> LinearScores:
    """The scores under θ and αL⁻¹."""
    models, size = factors.theta.shape
    joined = _joined(factors, alpha)
    weights: Array = joined if device.type == "cpu" else array_on(device, joined)
    if device.type == "cuda" and (fused := _fused(weights, models)) is not None:
        return fused
    arrays = arrays_on(device)

    def scores(latents: Array) -> tuple[Array, Array, Array]:
        products = latents @ weights
        # A copy: a view would keep all products alive as long as the answer.
        mean = arrays.copied(products[:, :models])
        bonus = arrays.norms(products[:, models:].reshape(*mean.shape, size))
        return mean, bonus, mean + bonus

    return scores if device.type == "cpu" else lambda latents: torch.stack(scores(latents))


def _joined(factors: Factors, alpha: float) -> Floats:
    """θ of all models, then (αL⁻¹)ᵀ of all models, (d, M·(1 + d)): one product gives all scores."""
    models, size = factors.theta.shape
    joined = np.empty((size, models * (1 + size)), dtype=np.float32)
    joined[:, :models] = factors.theta.T
    roots = factors.inverse_root.astype(np.float32)
    roots *= np.float32(alpha)
    joined[:, models:].reshape(size, models, size)[:] = roots.transpose(2, 0, 1)
    return joined


def _fused(weights: torch.Tensor, models: int) -> LinearScores | None:
    """The fused kernel, tested on one latent; None if it cannot be built."""
    try:
        from model.bandit.ucb_gpu import fused_scores  # noqa: PLC0415 - triton is only where CUDA is

        fused_scores(weights[:, :1].mT.contiguous(), weights, models)
    except Exception as error:  # noqa: BLE001 - it needs triton, a C compiler and a folder to write to
        details = {"action": "kernel_unavailable", "reason": type(error).__name__}
        log.warning(
            "The fused UCB kernel is unavailable; scores are computed unfused", extra=details
        )
        return None
    return lambda latents: fused_scores(latents, weights, models)
