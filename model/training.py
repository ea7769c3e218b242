"""One encoder update: a bounded number of Adam steps on the value function

    L = L_RS + w_R·L_err + w_P·L_reg + λ·L_div (+ w_C·consistency),

minimised by the encoder and the head, and, in L_div, maximised by the encoder against the
discriminator through gradient reversal. The result is a function of the training set, the networks
it starts from, the configuration and the seed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model import losses
from model.config import BanditConfig, Objective
from model.networks import Networks, Teacher
from model.randomness import derived_seed, generator
from model.replay import ContextSample, RoundBatch
from model.rounds import Domain, Doubles
from model.shares import ArmShares
from model.views import random_view

Moments = dict[str, Tensor]

_GRADIENT_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """What an encoder update may see, frozen at its offset in the log."""

    episode: int
    rounds: RoundBatch
    source: ContextSample
    target: ContextSample


@dataclass(frozen=True, slots=True)
class Trained:
    """New networks with their optimiser's moments and the mean of each loss term."""

    networks: Networks
    moments: Moments
    losses: dict[str, float]


def train_episode(
    start: Networks,
    moments: Moments,
    data: TrainingSet,
    config: BanditConfig,
    seed: int,
    theta: Doubles,
) -> Trained:
    """Train a copy of `start`; `theta` (M, d) is only used by the paper's objective."""
    networks = start.clone()
    networks.encoder.prepare(data.source.contexts, data.target.contexts)
    if not networks.encoder.is_learned or not config.steps_per_episode:
        return Trained(networks, {}, {})
    trainer = _Trainer(networks, data, config, seed, theta)
    return trainer.run(moments) if trainer.labelled else Trained(networks, moments, {})


class _Trainer:
    """The state of one encoder update."""

    def __init__(
        self, networks: Networks, data: TrainingSet, config: BanditConfig, seed: int, theta: Doubles
    ) -> None:
        self.networks = networks
        self.config = config
        self.episode = data.episode
        self.device = data.target.contexts.device
        self.theta = torch.as_tensor(theta, dtype=torch.float32, device=self.device)
        self.target = data.target.contexts
        used = data.rounds.rows(~data.rounds.is_held_out)
        self.labelled = [
            (domain, _Labelled(used.rows(used.is_target == (domain is Domain.TARGET))))
            for domain in Domain
        ]
        self.labelled = [(domain, rounds) for domain, rounds in self.labelled if rounds.count]
        strength = losses.ramped(config.divergence_weight, data.episode, config.divergence_ramp)
        self.strength = torch.tensor(strength, device=self.device)
        self.rng = generator(seed, "batches", data.episode)
        self.view_rng = torch.Generator(self.device)
        self.view_rng.manual_seed(derived_seed(seed, "views", data.episode))

    def run(self, moments: Moments) -> Trained:
        """All steps of the episode."""
        parameters = {k: p for k, p in self.networks.named_parameters() if p.requires_grad}
        optimiser = torch.optim.Adam(parameters.values(), lr=self.config.learning_rate, fused=True)
        _load_moments(optimiser, parameters, moments)
        self.shares = self._shares()
        totals: dict[str, Tensor] = {}
        self.networks.train()
        for _ in range(self.config.steps_per_episode):
            terms = self._terms()
            optimiser.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), _GRADIENT_LIMIT)
            optimiser.step()
            if teacher := self.networks.teacher:
                teacher.follow(self.networks.encoder, self.networks.head, self.config.teacher_decay)
            for name, value in terms.items():
                totals[name] = (
                    totals.get(name, torch.zeros((), device=self.device)) + value.detach()
                )
        self.networks.eval()
        means = {
            name: float(total) / self.config.steps_per_episode for name, total in totals.items()
        }
        return Trained(self.networks, _moments(optimiser, parameters), means)

    def _terms(self) -> dict[str, Tensor]:
        """The weighted loss terms of one step, each on a fresh batch."""
        config, networks = self.config, self.networks
        terms: dict[str, Tensor] = {}
        z_target = self._target_latents() if self._needs_target_latents() else None
        for domain, labelled in self.labelled:
            rows = self._rows(labelled.count)
            z = networks.encoder(labelled.contexts[rows], domain)
            predicted = self._predict(z)
            rewards = labelled.rewards[rows]
            chosen = predicted.gather(1, labelled.models[rows][:, None])[:, 0]
            _add(terms, "reward", self._reward_loss(chosen, rewards))
            if config.regression_weight:
                _add(
                    terms,
                    "regression",
                    config.regression_weight * losses.regression_error(chosen, rewards),
                )
            if config.prediction_weight:
                best = self._predict(z_target).amax(1) if z_target is not None else chosen[:0]
                _add(
                    terms,
                    "prediction",
                    config.prediction_weight * losses.predicted_reward(best, chosen, rewards),
                )
            if domain is Domain.SOURCE and z_target is not None and config.divergence_weight:
                terms["divergence"] = self._divergence(z, z_target, predicted)
        if networks.teacher is not None and len(self.target) > 1:
            weight = losses.ramped(config.consistency_weight, self.episode, config.divergence_ramp)
            terms["consistency"] = weight * self._consistency(networks.teacher)
        return terms

    def _needs_target_latents(self) -> bool:
        wanted = self.config.divergence_weight or self.config.prediction_weight
        return bool(wanted) and len(self.target) > 1

    def _target_latents(self) -> Tensor:
        latents: Tensor = self.networks.encoder(
            self.target[self._rows(len(self.target))], Domain.TARGET
        )
        return latents

    def _predict(self, z: Tensor) -> Tensor:
        """Expected rewards (n, M): the head's, or the frozen θ's for the paper's objective."""
        if self.config.objective is Objective.PAPER:
            return z @ self.theta.T
        predicted: Tensor = self.networks.head(z)
        return predicted

    def _reward_loss(self, chosen: Tensor, rewards: Tensor) -> Tensor:
        if self.config.objective is Objective.PAPER:
            return losses.squared_error(chosen, rewards)
        return losses.bandit_likelihood(chosen, rewards)

    def _divergence(self, z_source: Tensor, z_target: Tensor, predicted: Tensor) -> Tensor:
        weights = torch.ones_like(z_source[:, 0])
        if self.config.balance_classes and self.shares is not None:
            weights = self.shares.source_weights(predicted.detach())
        reversed_ = losses.reverse_gradient(torch.cat([z_source, z_target]), self.strength)
        logits = self.networks.discriminator(reversed_)
        return losses.divergence(logits[: len(z_source)], logits[len(z_source) :], weights)

    def _consistency(self, teacher: Teacher) -> Tensor:
        contexts = self.target[self._rows(len(self.target))]
        steady = teacher.logits(random_view(contexts, self.view_rng), Domain.TARGET)
        z = self.networks.encoder(random_view(contexts, self.view_rng), Domain.TARGET)
        logits = self.networks.head.logits(z)
        if logits.shape[1] == 1:
            return losses.squared_error(logits.sigmoid(), steady.sigmoid())
        taught = steady.softmax(dim=1)
        if self.shares is not None:
            taught = self.shares.aligned(taught)
        return losses.consistency(logits, taught, self.config.confidence_floor)

    @torch.no_grad()
    def _shares(self) -> ArmShares | None:
        """How the domains differ in arm shares under the head, at the start of the episode."""
        config = self.config
        has_both = self.labelled[0][0] is Domain.SOURCE and len(self.target) >= config.batch_size
        if config.model_count < 2 or not has_both:
            return None
        source = self.networks.encode(self.labelled[0][1].contexts[-4096:], Domain.SOURCE)
        target = self.networks.encode(self.target, Domain.TARGET)
        return ArmShares.estimated(self._predict(source), self._predict(target))

    def _rows(self, count: int) -> Tensor:
        rows = self.rng.integers(count, size=self.config.batch_size)
        return torch.from_numpy(rows).to(self.device)


class _Labelled:
    """The rounds of one domain as tensors."""

    def __init__(self, rounds: RoundBatch) -> None:
        device = rounds.contexts.device
        self.count = len(rounds)
        self.contexts = rounds.contexts
        self.models = torch.from_numpy(rounds.arms).to(device)
        self.rewards = torch.from_numpy(rounds.rewards.astype(np.float32)).to(device)


def _add(terms: dict[str, Tensor], name: str, value: Tensor) -> None:
    terms[name] = terms[name] + value if name in terms else value


def _load_moments(
    optimiser: torch.optim.Adam, parameters: dict[str, torch.nn.Parameter], moments: Moments
) -> None:
    """Continue Adam where the last good update left it."""
    for name, parameter in parameters.items():
        if f"{name}.first" in moments:
            optimiser.state[parameter] = {
                "step": moments["step"].clone(),
                "exp_avg": moments[f"{name}.first"].clone(),
                "exp_avg_sq": moments[f"{name}.second"].clone(),
            }


def _moments(optimiser: torch.optim.Adam, parameters: dict[str, torch.nn.Parameter]) -> Moments:
    """Adam's state by parameter name; parameters without a gradient have none."""
    moments: Moments = {}
    for name, parameter in parameters.items():
        if state := optimiser.state.get(parameter):
            moments[f"{name}.first"] = state["exp_avg"]
            moments[f"{name}.second"] = state["exp_avg_sq"]
            moments["step"] = state["step"]
    return moments
