"""Diagnostics of transfer: terms of the paper's regret analysis, and label-free validators.

The paper bounds the target regret by

    source regret + 2·regression error + N·divergence + Σ predicted rewards of both domains + ψ + C

The terms here are no bound, and their sum is none: the predicted rewards are those of the target alone, ψ
and C are unknown, and the probes see a part of all hypotheses. Each is a diagnostic to compare over encoders.

Everything is estimated without target rewards. Latents are (n, d) of norm 1, from evaluation mode.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.encoders.first_weights import first_weights
from model.rounds import Doubles
from model.training.discriminator import Discriminator

# Probes are small and regularised, so that a few hundred latents do not overfit them.
_PROBE_STEPS = 200
_PROBE_SIZE = 32
_PROBE_RATE, _HEADS_RATE = 1e-2, 5e-2
_PROBE_DECAY = 1e-4
_DENSITY_TEMPERATURE = 0.05  # as in the paper of SND
_TEMPERATURE = 0.1  # sharpens predicted rewards, which lie in [0, 1], before their entropy is taken
_TINY = 1e-300  # keeps a sum of zeros from dividing by zero
_NEIGHBOURS = 2048  # target latents compared with each other: the cost is quadratic


@dataclass(frozen=True, slots=True)
class TransferReport:
    """Diagnostics per round, all without target rewards: terms of the paper's analysis and validators."""

    source_regret: float
    regression_error: float
    divergence: float
    predicted_reward: float
    proxy_a_distance: float
    domain_accuracy: float
    target_entropy: float
    target_density: float
    source_rank: float
    target_rank: float


def transfer_report(
    source: Tensor,
    target: Tensor,
    predicted: Doubles,
    rewards: Doubles,
    on_target: Doubles,
    seed: int,
) -> TransferReport:
    """Judge latents of held-out source rounds (n, d) against target latents (m, d).

    `predicted` (n,) are the predictions for the chosen arms, which paid `rewards` (n,). `on_target` (m, M)
    are the predictions for the target.
    """
    scores = torch.from_numpy(on_target)
    accuracy = domain_accuracy(source, target, seed)
    return TransferReport(
        source_regret=source_regret_upper(rewards),
        regression_error=regression_error(predicted, rewards),
        divergence=adversarial_divergence(source, target, seed),
        predicted_reward=float(scores.amax(dim=1).abs().mean()),
        proxy_a_distance=proxy_a_distance(accuracy),
        domain_accuracy=accuracy,
        target_entropy=mean_entropy((scores / _TEMPERATURE).softmax(dim=1)),
        target_density=soft_neighbourhood_density(target[:_NEIGHBOURS]),
        source_rank=effective_rank(source),
        target_rank=effective_rank(target),
    )


def source_regret_upper(rewards: Doubles, best_reward: float = 1.0) -> float:
    """Upper estimate of the source regret per round: the best possible reward minus the mean reward."""
    return best_reward - float(rewards.mean())


def regression_error(predicted: Doubles, rewards: Doubles) -> float:
    """ε_S: mean |r − θᵀφ(x_a)| over the chosen arms."""
    return float(abs(rewards - predicted).mean())


def effective_rank(latents: Tensor) -> float:
    """exp of the entropy of the latents' normalised squared singular values: 1 = collapsed."""
    wide = latents.double()
    # From the smaller Gram matrix: much cheaper than a decomposition of the latents.
    products = wide.T @ wide if len(wide) > wide.shape[1] else wide @ wide.T
    values = torch.linalg.eigvalsh(products).clamp_min(0.0)
    weights = values / values.sum().clamp_min(_TINY)
    return float(torch.exp(torch.special.entr(weights).sum()))


def mean_entropy(probabilities: Tensor) -> float:
    """Mean entropy of predicted arm probabilities (n, K), in nats: low = confident."""
    return float(torch.special.entr(probabilities.double()).sum(1).mean())


def soft_neighbourhood_density(latents: Tensor, temperature: float = _DENSITY_TEMPERATURE) -> float:
    """SND (Saito 2021): entropy of the softmax over each target latent's neighbours; high = clustered."""
    similarity = (
        functional.normalize(latents.double(), dim=1)
        @ functional.normalize(latents.double(), dim=1).T
    ) / temperature
    similarity.fill_diagonal_(-torch.inf)
    return mean_entropy(similarity.softmax(dim=1))


def proxy_a_distance(accuracy: float) -> float:
    """2·(1 − 2·err) of a domain classifier with this held-out accuracy: 0 = alike, 2 = separable."""
    return max(0.0, 2.0 * (2.0 * accuracy - 1.0))


def domain_accuracy(source: Tensor, target: Tensor, seed: int) -> float:
    """Balanced held-out accuracy of a fresh discriminator trained on one half of the latents."""
    (s_fit, s_test), (t_fit, t_test) = _halves(source), _halves(target)
    with first_weights(seed, "domain probe"):
        probe = Discriminator(source.shape[1], hidden_size=_PROBE_SIZE).to(source.device)
    optimiser = torch.optim.Adam(probe.parameters(), lr=_PROBE_RATE, weight_decay=_PROBE_DECAY)
    for _ in range(_PROBE_STEPS):
        optimiser.zero_grad()
        (
            functional.softplus(probe(s_fit)).mean() + functional.softplus(-probe(t_fit)).mean()
        ).backward()
        optimiser.step()
    with torch.no_grad():
        right = (probe(s_test) <= 0).double().mean() + (probe(t_test) > 0).double().mean()
    return float(right) / 2


def adversarial_divergence(source: Tensor, target: Tensor, seed: int) -> float:
    """The regression H∆H divergence 2·sup_{h,h'} |E_S|h − h'| − E_T|h − h'|| on held-out latents.

    Two linear heads with outputs in [0, 1] are trained on one half of the latents to disagree on
    one domain and agree on the other, in both directions; the larger gap on the other half counts.
    """
    forward = _disagreement_gap(source, target, seed)
    backward = _disagreement_gap(target, source, seed)
    return 2.0 * max(0.0, forward, backward)


def _disagreement_gap(low: Tensor, high: Tensor, seed: int) -> float:
    (low_fit, low_test), (high_fit, high_test) = _halves(low), _halves(high)
    with first_weights(seed, "adversarial heads"):
        heads = nn.Linear(low.shape[1], 2).to(low.device)

    def gap(lows: Tensor, highs: Tensor) -> Tensor:
        distance = [
            (heads(z).sigmoid()[:, 0] - heads(z).sigmoid()[:, 1]).abs().mean()
            for z in (lows, highs)
        ]
        difference: Tensor = distance[1] - distance[0]
        return difference

    optimiser = torch.optim.Adam(heads.parameters(), lr=_HEADS_RATE, weight_decay=_PROBE_DECAY)
    for _ in range(_PROBE_STEPS):
        optimiser.zero_grad()
        (-gap(low_fit, high_fit)).backward()
        optimiser.step()
    with torch.no_grad():
        return float(gap(low_test, high_test))


def _halves(latents: Tensor) -> tuple[Tensor, Tensor]:
    """Even and odd rows: one to fit, one to judge."""
    return latents[0::2], latents[1::2]
