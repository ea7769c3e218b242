"""Scores by one product and by one kernel: the same numbers, and a way on where there is no kernel.

The kernel runs in triton's interpreter here; `benchmarks.device_parity` and `benchmarks.gpu` run it on a GPU.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bandit import ucb as linear
from model.bandit.linucb import Factors, LinUCB
from model.rounds import Domain

CPU = torch.device("cpu")
KERNEL = "model.bandit.ucb_gpu"


def _factors(models: int, size: int) -> Factors:
    rng = np.random.default_rng(models * size)
    statistics = LinUCB(models, size, 1.0)
    latents = rng.standard_normal((4 * models, size)).astype(np.float32)
    statistics.fold(latents, np.arange(4 * models) % models, rng.random(4 * models))
    return statistics.factors()


def _expected(factors: Factors, alpha: float, latents: Any) -> Any:
    wide = latents.astype(np.float64)
    mean = wide @ factors.theta.T
    bonus = alpha * np.linalg.norm(np.einsum("mij,nj->nmi", factors.inverse_root, wide), axis=2)
    return np.stack([mean, bonus, mean + bonus])


# Triton takes its interpreter when it is first imported, so the kernel has a process of its own.
INTERPRETED = """
import sys, numpy as np, torch
from model.bandit.ucb import _fused
given = np.load(sys.argv[1])
fused = _fused(torch.from_numpy(given["weights"]), int(given["models"]))
latents = torch.from_numpy(given["transposed"]).T
assert not latents.is_contiguous() or 1 in latents.shape
np.save(sys.argv[2], fused(latents).numpy())
"""


def _by_kernel(factors: Factors, alpha: float, latents: Any, folder: Path) -> Any:
    weights, models = linear._joined(factors, alpha), len(factors.theta)
    transposed = np.ascontiguousarray(latents.T)
    np.savez(folder / "given.npz", weights=weights, models=models, transposed=transposed)
    files = [str(folder / "given.npz"), str(folder / "scores.npy")]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED, *files], env=environment, check=True)
    return np.load(files[1])


SHAPES = [(1, 1, 5), (3, 10, 64), (200, 2, 16), (129, 3, 100), (7, 1, 130), (0, 2, 32)]


@pytest.mark.parametrize(("count", "models", "size"), SHAPES)
def test_one_product_gives_mean_bonus_and_ucb(count: int, models: int, size: int):
    factors = _factors(models, size)
    latents = np.random.default_rng(1).standard_normal((count, size)).astype(np.float32)
    by_domain = linear.linear_scores(factors, 0.7, CPU)
    assert by_domain[Domain.SOURCE] is by_domain[Domain.TARGET]
    scores = by_domain[Domain.SOURCE](latents)
    np.testing.assert_allclose(scores, _expected(factors, 0.7, latents), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("count", "models", "size"), SHAPES)
def test_a_target_with_a_theta_of_its_own_has_the_widths_of_the_source(
    count: int, models: int, size: int
):
    factors = _factors(models, size)
    other = replace(factors, own_target_theta=factors.theta[:, ::-1].copy())
    latents = np.random.default_rng(1).standard_normal((count, size)).astype(np.float32)
    scores = linear.linear_scores(other, 0.7, CPU)
    expected = _expected(replace(factors, theta=other.target_theta), 0.7, latents)
    np.testing.assert_allclose(scores[Domain.TARGET](latents), expected, rtol=2e-5, atol=2e-6)
    expected = _expected(factors, 0.7, latents)
    np.testing.assert_allclose(scores[Domain.SOURCE](latents), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("count", "models", "size"),
    [(3, 10, 64), *(pytest.param(*each, marks=pytest.mark.slow) for each in SHAPES[:-1])],
)
def test_one_kernel_gives_the_same(count: int, models: int, size: int, tmp_path: Path):
    factors = _factors(models, size)
    latents = np.random.default_rng(1).standard_normal((count, size)).astype(np.float32)
    scores = _by_kernel(factors, 0.7, latents, tmp_path)
    assert scores.shape == (3, count, models)
    np.testing.assert_allclose(scores, _expected(factors, 0.7, latents), rtol=2e-5, atol=2e-6)


def test_where_no_kernel_can_be_built_it_is_said_and_there_is_none(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, KERNEL, None)
    assert linear._fused(torch.zeros(4, 10), 2) is None
    assert "kernel_unavailable" in {record.action for record in caplog.records}  # type: ignore[attr-defined]
