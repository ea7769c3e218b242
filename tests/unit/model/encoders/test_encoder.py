from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model.encoders.base import Encoder, FrozenEncoder
from model.encoders.images import Conv, DomainBatchNorm
from model.encoders.kinds import ENCODERS, build_encoder
from model.encoders.vectors import (
    MLP,
    Identity,
    ProjectedMLP,
    Projection,
    Standardise,
    are_binary,
    variation_weights,
)
from model.learner import Learner
from model.rounds import Domain, Floats
from tests.support.builders import make_rounds, small_config, teach

CPU = torch.device("cpu")
VECTOR_KINDS = ["identity", "scaled", "pca", "scaled-pca", "mlp", "pca-mlp"]
IMAGE_KINDS = ["conv", "strided-conv"]
CASES: list[tuple[str, tuple[int, ...]]] = [(kind, (4,)) for kind in VECTOR_KINDS]
CASES += [(kind, (3, 8, 8)) for kind in [*VECTOR_KINDS, *IMAGE_KINDS]]


def built(kind: str, shape: tuple[int, ...] = (4,), **changes: Any) -> Encoder:
    torch.manual_seed(0)
    encoder = build_encoder(small_config(encoder=kind, context_shape=shape, **changes))
    contexts = torch.randn(64, *shape)
    encoder.prepare(contexts, 2 * contexts + 1, contexts)
    return encoder.eval()


def contexts_of(shape: tuple[int, ...], count: int = 9) -> Floats:
    rng = np.random.default_rng(5)
    return rng.standard_normal((count, *shape)).astype(np.float32)


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_latents_have_norm_one_and_the_stated_size(kind, shape):
    encoder = built(kind, shape)
    latents = FrozenEncoder.of(encoder, CPU).on_host(contexts_of(shape), Domain.TARGET)
    assert latents.shape == (9, encoder.latent_size)
    assert latents.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(latents, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(("kind", "shape"), CASES)
@pytest.mark.parametrize("domain", Domain)
def test_frozen_function_equals_the_network_in_evaluation_mode(kind, shape, domain):
    encoder, contexts = built(kind, shape), contexts_of(shape)
    with torch.no_grad():
        expected = encoder(torch.from_numpy(contexts), domain).numpy()
    frozen = FrozenEncoder.of(encoder, CPU).on_host(contexts, domain)
    np.testing.assert_allclose(frozen, expected, atol=1e-6)


@pytest.mark.parametrize(("kind", "shape"), [*CASES, ("committee", (4,))])
def test_both_domains_together_are_what_each_is_by_itself(kind, shape):
    source = torch.from_numpy(contexts_of(shape, 9))
    target = 3 - torch.from_numpy(contexts_of(shape, 7))
    members = {"tower_count": 4, "latent_size": 16}  # of a committee, half on scales of their own
    apart, joined = (built(kind, shape, **members).train() for _ in range(2))
    expected = torch.cat([apart(source, Domain.SOURCE), apart(target, Domain.TARGET)])
    found = joined.forward_both(source, target)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    for latents in (found, expected):
        if latents.requires_grad:
            (latents * direction).sum().backward()
    gradients = zip(joined.named_parameters(), apart.parameters(), strict=True)
    for (name, parameter), other in gradients:
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, other.grad, msg=name)
    for mine, theirs in zip(joined.buffers(), apart.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", ["scaled", "pca", "scaled-pca", "mlp", "pca-mlp", *IMAGE_KINDS])
def test_frozen_function_does_not_follow_the_network(kind):
    encoder, contexts = built(kind, (3, 8, 8)), contexts_of((3, 8, 8))
    frozen = FrozenEncoder.of(encoder, CPU)
    before = frozen.on_host(contexts, Domain.SOURCE)
    for value in encoder.state_dict().values():
        value.mul_(-0.5)
    np.testing.assert_array_equal(frozen.on_host(contexts, Domain.SOURCE), before)


@pytest.mark.parametrize(("kind", "shape"), CASES)
@pytest.mark.parametrize("value", [0.0, 1e-30, -1e6, 3.4e38, -3.4e38])
def test_extreme_constant_context_gives_finite_latents(kind, shape, value):
    contexts = np.full((1, *shape), value, dtype=np.float32)
    latents = FrozenEncoder.of(built(kind, shape), CPU).on_host(contexts, Domain.SOURCE)
    assert np.isfinite(latents).all()


def test_auto_means_conv_for_images_and_mlp_for_vectors():
    assert isinstance(build_encoder(small_config(context_shape=(3, 8, 8))), Conv)
    assert isinstance(build_encoder(small_config()), MLP)


def test_new_kind_is_registered_in_one_place(monkeypatch):
    class Doubled(Identity):
        pass

    monkeypatch.setitem(ENCODERS, "doubled", Doubled)
    learner = Learner(small_config(encoder="doubled"), seed=0)
    assert isinstance(learner.networks.encoder, Doubled)


def test_unknown_kind_is_a_value_error_naming_the_field():
    with pytest.raises(ValueError, match=r"^encoder: .*conv"):
        build_encoder(small_config(encoder="transformer"))


def test_conv_over_vectors_is_a_value_error_naming_the_field():
    with pytest.raises(ValueError, match=r"^encoder: "):
        build_encoder(small_config(encoder="conv"))


def test_identity_only_scales_the_context():
    contexts = np.array([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=np.float32)
    latents = FrozenEncoder.of(built("identity"), CPU).on_host(contexts, Domain.SOURCE)
    np.testing.assert_allclose(latents, [[0.6, 0.8, 0.0, 0.0], [0.0] * 4], atol=1e-6)


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_linear_kinds_are_learned_only_where_they_have_a_network(kind):
    assert built(kind).is_learned is ("mlp" in kind)


def test_projection_is_fitted_on_the_contexts_of_both_domains():
    projection = Projection(small_config(component_count=1))
    source, target = torch.zeros(50, 4), torch.zeros(50, 4)
    source[:, 0], target[:, 0] = -3.0, 5.0  # only the two together vary, and along axis 0
    projection.prepare(source, target, source)
    np.testing.assert_allclose(projection.components.abs().numpy(), [[1, 0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(projection.center.numpy(), [1, 0, 0, 0], atol=1e-6)


def test_projection_starts_as_the_leading_coordinates():
    projection = Projection(small_config(component_count=2))
    few = torch.randn(2, 4)
    projection.prepare(few, torch.zeros(0, 4), few)  # too few to fit
    latents = projection(torch.tensor([[3.0, 4.0, 9.0, 9.0]]), Domain.SOURCE)
    np.testing.assert_allclose(latents.numpy(), [[0.6, 0.8]], atol=1e-6)


def test_components_count_as_far_as_rewarded_rounds_differ_in_them():
    encoder = ProjectedMLP(small_config(component_count=3))
    contexts = torch.randn(100, 4)
    encoder.prepare(contexts, contexts + 1, contexts)
    assert (encoder.standardise.scale > 0).all()
    encoder.prepare(contexts, contexts + 1, contexts[:1].expand(50, 4))
    assert (encoder.standardise.scale == 0).all()


def test_standardised_features_have_mean_zero_and_spread_one():
    standardise = Standardise(3)
    contexts = torch.randn(500, 3) * torch.tensor([1.0, 50.0, 0.1]) + 7
    standardise.fit(contexts, *Domain)
    for domain in Domain:
        scaled = standardise(contexts, domain)
        assert scaled.mean(0).abs().max() < 1e-4
        np.testing.assert_allclose(scaled.std(0).numpy(), 1.0, atol=1e-3)


def test_domains_can_be_standardised_each_by_itself():
    standardise = Standardise(3)
    contexts = torch.randn(500, 3)
    standardise.fit(contexts, Domain.SOURCE)
    standardise.fit(5 * contexts + 2, Domain.TARGET)
    torch.testing.assert_close(
        standardise(5 * contexts + 2, Domain.TARGET),
        standardise(contexts, Domain.SOURCE),
        atol=1e-4,
        rtol=0,
    )


def test_constant_feature_keeps_scale_one():
    standardise = Standardise(2)
    standardise.fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), Domain.SOURCE)
    assert standardise.scale[0, 1] == 1.0
    assert standardise(torch.tensor([[2.0, 5.5]]), Domain.SOURCE)[0, 1] == 0.5


@pytest.mark.parametrize("kind", ["mlp", "committee"])
@pytest.mark.parametrize("domain", Domain)
def test_what_never_varied_where_rewards_came_from_says_nothing(kind, domain):
    encoder = build_encoder(small_config(encoder=kind, latent_size=16))
    source, target = torch.randn(64, 4), torch.randn(64, 4)
    source[:, 2] = 1.0
    encoder.prepare(source, target, source)
    other = target.clone()
    other[:, 2] += 5.0
    assert torch.equal(encoder(target, domain), encoder(other, domain))
    frozen = FrozenEncoder.of(encoder.eval(), CPU)
    expected, found = (frozen.on_host(x.numpy(), domain) for x in (target, other))
    np.testing.assert_array_equal(expected, found)
    other[:, 1] += 5.0
    assert not torch.allclose(encoder(target, domain), encoder(other, domain), atol=0.01)


@pytest.mark.parametrize("kind", ["mlp", "committee"])
def test_features_that_never_varied_count_where_that_is_asked_for(kind):
    encoder = build_encoder(small_config(encoder=kind, latent_size=16, downweight_unseen=False))
    source, target = torch.randn(64, 4), torch.randn(64, 4)
    source[:, 2] = 1.0
    encoder.prepare(source, target, source)
    other = target.clone()
    other[:, 2] += 5.0
    assert not torch.allclose(encoder(target, Domain.TARGET), encoder(other, Domain.TARGET))


def test_a_feature_counts_once_it_varied_in_a_rewarded_round_of_either_domain():
    learner = Learner(small_config(encoder="mlp", holdout_share=0.0), seed=0)
    rounds = make_rounds(learner.config, 32)
    for round_ in rounds[:16]:
        round_.context[2] = 1.0
    learner.open_target()
    teach(learner, rounds[:16])
    probe = np.zeros((2, 4), dtype=np.float32)
    probe[1, 2] = 5.0
    first, second = learner.policy().score_many(probe, Domain.TARGET).mean
    np.testing.assert_array_equal(first, second)
    teach(learner, (replace(round_, domain=Domain.TARGET) for round_ in rounds[16:]))
    first, second = learner.policy().score_many(probe, Domain.TARGET).mean
    assert not np.allclose(first, second)


@pytest.mark.parametrize("count", [0, 1])
def test_all_features_count_before_there_are_two_rewarded_rounds(count):
    assert variation_weights(
        torch.zeros(count, 3), torch.randn(9, 3), torch.ones(3).bool()
    ).tolist() == [1.0, 1.0, 1.0]


def test_a_yes_or_no_counts_by_the_share_of_its_variance_that_rewards_have_seen():
    contexts, rewarded = torch.zeros(100, 4), torch.zeros(100, 4)
    contexts[:50, 0], rewarded[:10, 0] = 1.0, 1.0  # 0.25 and 0.09 of variance
    contexts[:10, 1], rewarded[:50, 1] = 1.0, 1.0
    contexts[:50, 2] = 1.0
    contexts[:, 3], rewarded[:, 3] = torch.randn(100), 0.01 * torch.randn(100)  # a measurement
    shares = variation_weights(rewarded, contexts, are_binary(contexts))
    torch.testing.assert_close(shares, torch.tensor([0.36, 1.0, 0.0, 1.0]))


def test_batch_statistics_of_the_domains_stay_apart():
    norm = DomainBatchNorm(1, momentum=1.0)
    source, target = torch.tensor([[0.0], [2.0]]), torch.tensor([[100.0], [104.0]])
    norm(source, Domain.SOURCE)
    norm(target, Domain.TARGET)
    np.testing.assert_allclose(norm.mean.numpy(), [[1.0], [102.0]])
    np.testing.assert_allclose(norm.variance.numpy(), [[2.0], [8.0]])


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_domains_can_share_batch_statistics(kind):
    encoder = build_encoder(
        small_config(encoder=kind, context_shape=(3, 8, 8), domain_batch_norm=False)
    )
    source, target = torch.randn(16, 3, 8, 8), 5 + torch.randn(16, 3, 8, 8)
    encoder.recalibrate(source, target)
    assert isinstance(encoder, Conv)
    shared = torch.cat([source, target])
    torch.testing.assert_close(
        encoder.train()(shared, Domain.SOURCE), encoder.forward_both(source, target)
    )
    encoder.eval()
    torch.testing.assert_close(encoder(target, Domain.SOURCE), encoder(target, Domain.TARGET))
    norm = encoder.norms[0]
    assert isinstance(norm, DomainBatchNorm)
    assert norm.batch_count[1] == 0


def test_target_is_normalised_as_source_until_it_was_seen():
    norm = DomainBatchNorm(1, momentum=1.0)
    norm(torch.tensor([[10.0], [14.0]]), Domain.SOURCE)
    norm.eval()
    probe = torch.tensor([[11.0]])
    assert norm(probe, Domain.TARGET) == norm(probe, Domain.SOURCE)
    norm.train()(torch.tensor([[50.0], [52.0]]), Domain.TARGET)
    assert norm.eval()(probe, Domain.TARGET) != norm(probe, Domain.SOURCE)


def test_evaluation_leaves_batch_statistics_alone():
    norm = DomainBatchNorm(2).eval()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(torch.randn(8, 2), Domain.TARGET)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_conv_sees_a_domain_through_its_own_statistics(kind):
    encoder = built(kind, (3, 8, 8)).train()
    images = torch.randn(16, 3, 8, 8)
    for _ in range(60):
        encoder(images, Domain.SOURCE)
        encoder(5 * images, Domain.TARGET)
    encoder.eval()
    source, target = encoder(images, Domain.SOURCE), encoder(5 * images, Domain.TARGET)
    assert (source * target).sum(1).min() > 0.99  # the change of gain is normalised away
    assert (source * encoder(5 * images, Domain.SOURCE)).sum(1).min() < 0.99


@pytest.mark.parametrize("kind", IMAGE_KINDS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (1, 16, 9), (3, 70, 33)])
def test_conv_takes_images_of_any_size(kind, shape):
    latents = built(kind, shape)(torch.randn(2, *shape), Domain.SOURCE)
    assert latents.shape == (2, 4)


def test_strides_take_half_the_arithmetic_of_pools():
    shape = (3, 28, 28)
    products = []
    for kind in IMAGE_KINDS:
        with FlopCounterMode(display=False) as counter:
            built(kind, shape)(torch.zeros(1, *shape), Domain.SOURCE)
        products.append(counter.get_total_flops())
    assert products[1] < 0.55 * products[0]


def test_projection_is_fitted_again_only_for_twice_the_contexts():
    rng = torch.Generator().manual_seed(0)
    projection = Projection(small_config(component_count=1))

    def prepare(source: int, target: int) -> None:
        rewarded = torch.randn(source, 4, generator=rng)
        projection.prepare(rewarded, torch.randn(target, 4, generator=rng), rewarded)

    prepare(50, 50)
    first = projection.components.clone()
    prepare(99, 100)
    assert torch.equal(projection.components, first)
    prepare(100, 100)
    assert not torch.equal(projection.components, first)
