"""Training may round where the CPU is faster for it; what is served never does."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.config import BanditConfig
from model.encoders import precision
from model.encoders.first_weights import first_weights
from model.encoders.images import Conv
from model.rounds import Domain

SHAPE = (3, 12, 12)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with matrix units for bfloat16, as far as we look at it; it computes the same without."""
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    precision.multiplies_bfloat16.cache_clear()


def _encoder() -> Conv:
    with first_weights(3, "encoder"):
        return Conv(BanditConfig(arm_count=2, context_shape=SHAPE, latent_size=8))


def _contexts(count: int = 16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).random((count, *SHAPE), dtype=np.float32))


def _trained(encoder: Conv) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    latents = encoder.train().together(_contexts(), 1 - _contexts())
    latents[:, 0].sum().backward()
    return latents.detach(), {
        n: p.grad for n, p in encoder.named_parameters() if p.grad is not None
    }


def test_a_step_is_nearly_what_it_is_without_rounding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: False)
    exact, gradients = _trained(_encoder())
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)
    rounded, others = _trained(_encoder())
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.0, atol=0.03)
    assert others.keys() == gradients.keys()
    assert all(gradient.dtype == torch.float32 for gradient in others.values())


@pytest.mark.usefixtures("fast")
def test_what_is_served_is_not_rounded():
    encoder = _encoder().eval()
    with torch.no_grad():
        served = encoder(_contexts(), Domain.SOURCE)
        wide = encoder.double()(_contexts().double(), Domain.SOURCE)
    torch.testing.assert_close(served.double(), wide, rtol=1e-5, atol=1e-6)


def test_the_statistics_that_are_served_are_not_rounded(monkeypatch: pytest.MonkeyPatch):
    settled = []
    for is_fast in (False, True):
        monkeypatch.setattr(precision, "multiplies_bfloat16", lambda is_fast=is_fast: is_fast)
        encoder = _encoder()
        encoder.settle(_contexts(), 1 - _contexts())
        settled.append(encoder.state_dict())
    assert all(torch.equal(one, settled[1][name]) for name, one in settled[0].items())
    latents = encoder.train()(_contexts(), Domain.SOURCE)  # and afterwards training rounds again
    assert not torch.equal(latents, _exact(encoder, monkeypatch))


def _exact(encoder: Conv, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: False)
    latents: torch.Tensor = encoder.train()(_contexts(), Domain.SOURCE)
    return latents


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags : fpu amx_bf16 amx_tile\n", True),
        ("Features : fp asimd bf16\n", False),
        (None, False),
    ],
)
def test_the_cpu_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, *, expected: bool
):
    monkeypatch.setattr(precision, "_CPU_INFO", tmp_path / "cpuinfo")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert precision.multiplies_bfloat16() is expected
