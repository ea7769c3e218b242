from typing import Any

import numpy as np
import pytest
import torch

from model.config import system_config
from model.encoders.ensemble import (
    MemberLinear,
    alignment_factors,
    by_member,
    fitting_count,
    member_weights,
)
from model.encoders.vectors import Ensemble
from model.rounds import Domain
from model.training.discriminator import Discriminator


def ensemble(members: int = 4, latent_size: int = 16, **changes: Any) -> Ensemble:
    torch.manual_seed(0)
    config = system_config(
        "daband",
        arm_count=3,
        context_shape=(5,),
        encoder="committee",
        tower_count=members,
        latent_size=latent_size,
        hidden_sizes=(6,),
        **changes,
    )
    return Ensemble(config)


def test_member_layer_is_one_linear_layer_a_member():
    layer, values = MemberLinear(3, 4, 2), torch.randn(5, 3, 4)
    alone = torch.stack([values[:, t] @ layer.weight[t] + layer.bias[t] for t in range(3)], dim=1)
    torch.testing.assert_close(layer(values), alone)


def test_members_start_different():
    weight = MemberLinear(2, 4, 4).weight
    assert not torch.equal(weight[0], weight[1])


def test_joined_latents_have_norm_one_and_so_has_each_part():
    latents = ensemble()(torch.randn(7, 5), Domain.SOURCE)
    torch.testing.assert_close(latents.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(by_member(latents, 4).norm(dim=2), torch.ones(7, 4))


@pytest.mark.parametrize(
    ("members", "shares"),
    [(1, [1.0]), (4, [0, 0, 1, 1]), (6, [0, 0, 0.5, 0.5, 1, 1]), (8, [0, 0, 0, 0, 0.5, 0.5, 1, 1])],
)
def test_shares_rise_from_none_to_all(members, shares):
    assert alignment_factors(members).tolist() == shares


def test_odd_members_see_each_domain_on_its_own_scale():
    encoder, contexts = ensemble(members=2, latent_size=8), torch.randn(200, 5)
    moved = 3 * contexts + 10
    encoder.prepare(contexts, moved, contexts)
    source = by_member(encoder(contexts, Domain.SOURCE), 2)
    target = by_member(encoder(moved, Domain.TARGET), 2)
    torch.testing.assert_close(source[:, 1], target[:, 1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(source[:, 0], target[:, 0], atol=0.05)


def test_few_target_contexts_give_no_scale_of_their_own():
    encoder, contexts = ensemble(), torch.randn(200, 5)
    encoder.prepare(contexts, 100 + contexts[:5], contexts)
    assert torch.equal(encoder.own.center, encoder.common.center)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("measured_fraction", [0.0, 1.0])
def test_members_that_are_all_aligned_weigh_the_same(members, measured_fraction):
    assert member_weights(members, measured_fraction).tolist() == [1.0] * members


def test_the_aligned_half_weighs_as_far_as_features_are_measured():
    torch.testing.assert_close(member_weights(4, 1.0), torch.ones(4))
    half = member_weights(4, 0.5)
    torch.testing.assert_close(half[2] / half[0], torch.tensor(1 / 3))
    torch.testing.assert_close(half.square().sum(), torch.tensor(4.0))
    none = torch.tensor([2.0, 2.0, 0.0, 0.0]).sqrt()
    torch.testing.assert_close(member_weights(4, 0.0), none)


def test_what_says_yes_or_no_is_on_one_scale_and_nothing_to_align():
    encoder, source, target = ensemble(), torch.randn(100, 5), 3 + torch.randn(100, 5)
    source[:, 1:] = (source[:, 1:] > 0).float()
    target[:, 1:] = (target[:, 1:] > 3.5).float()
    encoder.prepare(source, target, source)
    shared = encoder.own.center[0] == encoder.own.center[1]
    assert shared.tolist() == [False, True, True, True, True]
    torch.testing.assert_close(encoder.own.scale[:, 1:], encoder.common.scale[:, 1:])
    encoder.recalibrate(source, target)
    torch.testing.assert_close(encoder.weights, member_weights(4, 0.2))


def test_binary_features_are_aligned_where_that_is_asked_for():
    encoder, source, target = ensemble(align_binary=True), torch.randn(100, 5), torch.randn(100, 5)
    source[:, 1:] = (source[:, 1:] > 0).float()
    target[:, 1:] = (target[:, 1:] > 0.5).float()
    encoder.prepare(source, target, source)
    assert (encoder.own.center[0] != encoder.own.center[1]).all()
    encoder.recalibrate(source, target)
    assert torch.equal(encoder.weights, torch.ones(4))


@pytest.mark.parametrize("measured_count", [1, 2, 4])
def test_a_scale_of_its_own_counts_as_far_as_features_are_measured(measured_count: int):
    encoder, source, target = ensemble(), torch.randn(100, 5), 3 + 2 * torch.randn(100, 5)
    for contexts in (source, target):
        contexts[:, measured_count:4] = (contexts[:, measured_count:4] > 1).float()
        contexts[:, 4] = 0.0  # left out
    encoder.prepare(source, target, source)
    share = measured_count / 4
    for row, contexts in enumerate((source, target)):
        common = torch.cat([source, target])
        center = share * contexts.mean(dim=0) + (1 - share) * common.mean(dim=0)
        scale = share / contexts.std(dim=0) + (1 - share) / common.std(dim=0)
        torch.testing.assert_close(encoder.own.center[row, 0], center[0])
        torch.testing.assert_close(encoder.own.scale[row, 0], scale[0])


def test_a_feature_that_is_left_out_is_neither_measured_nor_a_yes_or_no():
    encoder, source, target = ensemble(), torch.randn(100, 5), torch.randn(100, 5)
    source[:, 0] = 1.0
    source[:, 1], target[:, 1] = source[:, 1].sign(), target[:, 1].sign()
    encoder.prepare(source, target, source)
    encoder.recalibrate(source, target)
    torch.testing.assert_close(encoder.weights, member_weights(4, 0.75))


def test_members_weigh_the_same_where_none_is_aligned():
    encoder, source, target = (
        ensemble(divergence_weight=0.0),
        torch.randn(100, 5),
        torch.randn(100, 5),
    )
    source[:, 1:] = (source[:, 1:] > 0).float()
    target[:, 1:] = (target[:, 1:] > 0.5).float()
    encoder.prepare(source, target, source)
    encoder.recalibrate(source, target)
    assert torch.equal(encoder.weights, torch.ones(4))


def test_weights_scale_the_parts_and_not_what_the_heads_see():
    encoder, contexts = ensemble().eval(), torch.randn(7, 5)
    before = encoder(contexts, Domain.SOURCE)
    encoder.weights.copy_(member_weights(4, 0.5))
    after = encoder(contexts, Domain.SOURCE)
    torch.testing.assert_close(after.norm(dim=1), torch.ones(7))
    assert (after[:, :8].norm(dim=1) > 2 * after[:, 8:].norm(dim=1)).all()
    torch.testing.assert_close(by_member(after, 4), by_member(before, 4))


@pytest.mark.parametrize("domain", Domain)
@pytest.mark.parametrize("members", [1, 2, 6])
def test_frozen_ensemble_is_the_ensemble(domain, members):
    encoder = ensemble(members, latent_size=24).eval()
    source = torch.randn(100, 5)
    encoder.prepare(source, 2 + torch.randn(100, 5), source)
    encoder.weights.copy_(torch.rand(members) + 0.1)
    contexts = torch.randn(9, 5)
    frozen = encoder.frozen(domain, torch.device("cpu"))(contexts.numpy())
    np.testing.assert_allclose(frozen, encoder(contexts, domain).detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("most", "latent_size", "members"),
    [(8, 128, 8), (8, 60, 6), (8, 20, 4), (8, 8, 2), (8, 13, 1), (8, 3, 1), (1, 64, 1)],
)
def test_members_share_the_latents_evenly_and_are_not_too_narrow(most, latent_size, members):
    encoder = ensemble(most, latent_size)
    assert encoder.members == fitting_count(most, latent_size) == members
    assert encoder(torch.randn(7, 5), Domain.SOURCE).shape == (7, latent_size)


def test_discriminator_has_a_logit_for_each_aligned_member_and_sees_no_other():
    g, latents = Discriminator(8, hidden_size=4, members=4), torch.randn(5, 8)
    logits = g.logits(latents)
    assert logits.shape == (5, 2)
    torch.testing.assert_close(g(latents), logits.mean(dim=1))
    assert torch.equal(g.logits(torch.cat([latents[:, :4] + 1, latents[:, 4:]], dim=1)), logits)
    assert not torch.allclose(g.logits(latents + 1), logits)
