import torch

from model.training.discriminator import Discriminator


def test_one_logit_a_latent():
    assert Discriminator(4)(torch.randn(7, 4)).shape == (7,)


def test_learns_to_say_target_with_a_positive_logit():
    torch.manual_seed(0)
    source, target = torch.randn(64, 2) - 2, torch.randn(64, 2) + 2
    g = Discriminator(2, hidden_size=8)
    optimiser = torch.optim.Adam(g.parameters(), lr=0.05)
    for _ in range(40):
        optimiser.zero_grad()
        (g(source).exp().log1p().mean() + (-g(target)).exp().log1p().mean()).backward()
        optimiser.step()
    assert (g(target) > 0).float().mean() > 0.95
    assert (g(source) < 0).float().mean() > 0.95
