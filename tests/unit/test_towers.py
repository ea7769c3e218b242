import numpy as np
import pytest
import torch

from model.discriminator import Discriminator
from model.rounds import Domain
from model.systems import system_config
from model.towers import TowerLinear, by_tower, tower_shares
from model.vector_encoders import Committee


def committee(towers: int = 4, latent_size: int = 8, shape: tuple[int, ...] = (5,)) -> Committee:
    torch.manual_seed(0)
    config = system_config(
        "daband",
        arm_count=3,
        context_shape=shape,
        encoder="committee",
        tower_count=towers,
        latent_size=latent_size,
        hidden_sizes=(6,),
    )
    return Committee(config)


def test_tower_layer_is_one_linear_layer_a_tower():
    layer, values = TowerLinear(3, 4, 2), torch.randn(5, 3, 4)
    alone = torch.stack([values[:, t] @ layer.weight[t] + layer.bias[t] for t in range(3)], dim=1)
    torch.testing.assert_close(layer(values), alone)


def test_towers_start_different():
    weight = TowerLinear(2, 4, 4).weight
    assert not torch.equal(weight[0], weight[1])


def test_joined_latents_have_norm_one_and_so_has_each_part():
    latents = committee()(torch.randn(7, 5), Domain.SOURCE)
    torch.testing.assert_close(latents.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(by_tower(latents, 4).norm(dim=2), torch.ones(7, 4))


@pytest.mark.parametrize(
    ("towers", "shares"),
    [(1, [1.0]), (4, [0, 0, 1, 1]), (6, [0, 0, 0.5, 0.5, 1, 1]), (8, [0, 0, 0, 0, 0.5, 0.5, 1, 1])],
)
def test_shares_rise_from_none_to_all(towers, shares):
    assert tower_shares(towers).tolist() == shares


def test_odd_towers_see_each_domain_on_its_own_scale():
    encoder, contexts = committee(towers=2, latent_size=8), torch.randn(200, 5)
    moved = 3 * contexts + 10
    encoder.prepare(contexts, moved)
    source = by_tower(encoder(contexts, Domain.SOURCE), 2)
    target = by_tower(encoder(moved, Domain.TARGET), 2)
    torch.testing.assert_close(source[:, 1], target[:, 1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(source[:, 0], target[:, 0], atol=0.05)


def test_few_target_contexts_give_no_scale_of_their_own():
    encoder, contexts = committee(), torch.randn(200, 5)
    encoder.prepare(contexts, 100 + contexts[:5])
    assert torch.equal(encoder.own.center, encoder.common.center)


@pytest.mark.parametrize("domain", Domain)
def test_frozen_committee_is_the_committee(domain):
    encoder = committee().eval()
    encoder.prepare(torch.randn(100, 5), 2 + torch.randn(100, 5))
    contexts = torch.randn(9, 5)
    frozen = encoder.frozen(domain, torch.device("cpu"))(contexts.numpy())
    np.testing.assert_allclose(frozen, encoder(contexts, domain).detach(), atol=1e-6)


def test_latents_must_divide_among_the_towers():
    with pytest.raises(ValueError, match="latent_size"):
        committee(towers=3, latent_size=8)


def test_discriminator_has_a_logit_for_each_tower():
    g, latents = Discriminator(6, hidden_size=4, towers=3), torch.randn(5, 6)
    assert g.logits(latents).shape == (5, 3)
    torch.testing.assert_close(g(latents), g.logits(latents).mean(dim=1))
