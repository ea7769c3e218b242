import numpy as np
import pytest
import torch

from model.encoders.scaled import MeasuredScale, Scaled, ScaledProjection
from model.rounds import Domain
from tests.support.builders import small_config

RAW = torch.tensor([160.0, 0.5, 0.0, 70.0]), torch.tensor([10.0, 0.01, 1.0, 20.0])


def raw_contexts(count: int, seed: int = 0) -> torch.Tensor:
    """Features of very different sizes; the third is binary."""
    rng = torch.Generator().manual_seed(seed)
    contexts = RAW[0] + RAW[1] * torch.randn(count, 4, generator=rng)
    contexts[:, 2] = (contexts[:, 2] > 1).float()
    return contexts


def scale(slot_kinds: str = "") -> MeasuredScale:
    return MeasuredScale(small_config(slot_kinds=slot_kinds), 4)


def test_measured_features_have_one_scale_and_binary_ones_stay():
    source, target, found = raw_contexts(100), raw_contexts(300, 1), scale()
    target[:, [0, 3]] += 50  # another level, the same spread
    assert found.refit(source, target)
    seen = found(source, Domain.SOURCE)
    measured = seen[:, [0, 1, 3]]
    torch.testing.assert_close(measured.mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(measured.std(0), torch.ones(3), atol=0.15, rtol=0)
    assert torch.equal(seen[:, 2], source[:, 2])
    moved = (target - source.mean(0))[:, 0] / (target - target.mean(0))[:, 0].std()
    torch.testing.assert_close(found(target, Domain.TARGET)[:, 0], moved, atol=0.1, rtol=0.1)


def test_a_feature_that_is_constant_at_the_source_has_the_targets_spread():
    source, target, found = raw_contexts(100), raw_contexts(100, 1), scale()
    source[:, 0] = 160.0
    found.refit(source, target)
    assert float(found(target, Domain.TARGET)[:, 0].std()) == pytest.approx(2**0.5, abs=0.1)


def test_declared_kinds_win_over_what_values_look_like():
    contexts, declared = raw_contexts(100), scale("bbmm")
    declared.refit(contexts, contexts)
    seen = declared(contexts, Domain.SOURCE)
    assert torch.equal(seen[:, 1], contexts[:, 1])
    assert float(seen[:, 2].std()) == pytest.approx(1.0, abs=0.01)


def test_it_is_fitted_again_when_a_domain_has_twice_the_contexts():
    found, contexts = scale(), raw_contexts(400)
    counts = [(1, 0), (64, 0), (127, 0), (127, 1), (128, 1), (128, 2), (200, 3), (256, 2), (300, 3)]
    fitted = [found.refit(contexts[:source], contexts[:target]) for source, target in counts]
    assert fitted == [False, True, False, True, False, True, False, True, False]


@pytest.mark.parametrize("kind", [Scaled, ScaledProjection])
def test_the_unit_of_a_measured_feature_means_nothing(kind):
    contexts, units = raw_contexts(200), torch.tensor([0.01, 1000.0, 1.0, 2.2])
    latents = []
    for factor in (torch.ones(4), units):
        encoder = kind(small_config(component_count=3))
        encoder.prepare(factor * contexts, factor * contexts, contexts)
        latents.append(encoder(factor * contexts, Domain.TARGET))
    torch.testing.assert_close(*latents, atol=1e-4, rtol=1e-4)


def test_a_constant_is_seen_beside_the_features():
    encoder = Scaled(small_config())
    latents = encoder(torch.zeros(2, 4), Domain.SOURCE)
    assert latents.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]] * 2
    frozen = encoder.frozen(Domain.SOURCE, torch.device("cpu"))
    assert frozen(np.zeros((2, 4), np.float32)).tolist() == latents.tolist()
