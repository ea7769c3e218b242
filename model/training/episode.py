"""One encoder update, the inner loop of the paper's Algorithm 1:

    sample   rounds with rewards r of their arms, and target contexts without
    encode   z = φ(x)
    L_RS     −[r log p + (1 − r) log(1 − p)] of the chosen arms, or the paper's (θᵀz − r)²
    R        |r − prediction|
    P        |prediction| of the target's best arms, and of source arms as far as they did not pay
    D        domain cross-entropy of g(z); its gradient is reversed for φ, with strength λ
    C        consistency of the target's predictions with those of a mean teacher (`daband-plus`)
    step     Adam on the sum for φ, the head and g; slow copies follow

The result depends on `EpisodeInputs` alone: all random numbers come from generators named here.
Shapes: n rounds or contexts, T ensemble members (1 for most encoders), M linear models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from model.config import BanditConfig, Objective
from model.encoders.ensemble import alignment_factors
from model.memory import ContextSample, RoundBatch
from model.randomness import derived_seed, generator
from model.rounds import Domain, Doubles
from model.training import losses
from model.training.augmentation import augmented
from model.training.networks import Networks, SlowCopy
from model.training.optimiser import Batch, Moments, Optimiser, Recordings
from model.training.schedule import NONE_CAME, ContextCounts

STEPS_AT_ONCE = 16  # bounds the memory of batches and their augmentation
_STEPS_DRAWN = (
    256  # a multiple of STEPS_AT_ONCE: each copy of drawn rows from the host stalls a GPU
)
_NEWEST = 1024  # contexts of a domain that statistics are taken from after training
_PRIOR_VECTORS, _PRIOR_IMAGES = 4096, 1024  # for the arm prior; images take longer to encode
_AVERAGE_SPAN = 10.0  # early in training the average spans one tenth of all steps


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The data of an encoder update, frozen at its offset in the log, after `seen` rounds in total.

    `contexts` counts the contexts so far, of which `source` and `target` are samples; the training
    itself does not depend on it.
    """

    episode: int
    seen: int
    rounds: RoundBatch
    source: ContextSample
    target: ContextSample
    contexts: ContextCounts = NONE_CAME


@dataclass(frozen=True, slots=True)
class EpisodeInputs:
    """All inputs of an encoder update; the paper's objective and the gate use `theta` (M, d)."""

    data: TrainingSet
    networks: Networks
    moments: Moments
    theta: Doubles
    config: BanditConfig
    seed: int


@dataclass(frozen=True, slots=True)
class Trained:
    """New networks with their optimiser's moments and the mean of each loss term."""

    networks: Networks
    moments: Moments
    losses: dict[str, float]


def train_episode(inputs: EpisodeInputs, recordings: Recordings | None = None) -> Trained:
    """Train a copy of the networks; on a GPU, `recordings` keeps the recorded step for later episodes."""
    data, config, networks = inputs.data, inputs.config, inputs.networks.clone()
    for encoder in networks.encoders:
        encoder.prepare(data.source.contexts, data.target.contexts, data.rounds.contexts)
    if not networks.encoder.is_learned or not config.steps_per_episode:
        return Trained(networks, {}, {})
    sampler = _Sampler(inputs, networks)
    if not sampler.rounds:
        return Trained(networks, inputs.moments, {})
    training = Training(networks.train(), config)
    training.optimiser.load(inputs.moments)
    if sampler.device.type == "cuda":
        (recordings or Recordings()).run(training, sampler.batches())
    else:
        for batch in sampler.batches():
            training.step(batch)
    networks.eval().served.recalibrate(*sampler.newest())
    steps = config.steps_per_episode
    means = {name: float(total) / steps for name, total in training.totals.items()}
    return Trained(networks, training.optimiser.moments(), means)


class Training:
    """Networks in training with their optimiser and the sums of the loss terms."""

    def __init__(self, networks: Networks, config: BanditConfig) -> None:
        self.networks = networks
        self.config = config
        self.optimiser = Optimiser(networks, config.learning_rate)
        self.totals: dict[str, Tensor] = {}

    def of(self, networks: Networks) -> Self:
        """The same training of other networks, from the start."""
        return type(self)(networks, self.config)

    def step(self, batch: Batch) -> None:
        """One gradient step of tensor operations with fixed shapes, so that a GPU can record it."""
        networks = self.networks
        terms = loss_terms(networks, batch, self.config)
        self.optimiser.minimise(torch.stack(list(terms.values())).sum())
        slow = {"teacher_weight": networks.teacher, "average_weight": networks.average}
        for weight, copy in slow.items():
            if copy is not None:
                copy.follow(networks.encoder, networks.head, batch[weight])
        for name, value in terms.items():
            if name not in self.totals:
                self.totals[name] = torch.zeros_like(value)
            self.totals[name] += value.detach()


def loss_terms(networks: Networks, batch: Batch, config: BanditConfig) -> dict[str, Tensor]:
    """The weighted terms of L = L_RS + w_R·R + w_P·P + λ·D + w_C·C; see `_Sampler` for the batch."""
    z, counts = _encoded(networks, batch)
    logits = networks.head.logits(z)  # (n, T, M)
    at_source, at_target = _expected(networks, z, logits, batch, config).split(counts)
    known = {Domain.SOURCE: at_source} if counts[0] else {}
    if "target.contexts" in batch:  # continued phase: target rounds have rewards, too
        z_rounds = networks.encoder(batch["target.contexts"], Domain.TARGET)
        logits_rounds = networks.head.logits(z_rounds)
        known[Domain.TARGET] = _expected(networks, z_rounds, logits_rounds, batch, config)
    best = at_target.amax(2) if config.prediction_weight and counts[1] else at_target[:0, :, 0]
    terms: dict[str, Tensor] = {}
    for domain, expected in known.items():
        for name, value in _reward_terms(expected, best, domain, batch, config).items():
            terms[name] = terms[name] + value if name in terms else value
    if all(counts) and config.divergence_weight:
        terms["divergence"] = _divergence(networks, z, counts, batch)
    if counts[1] and "teacher" in batch:
        consistency = _consistency(networks, logits[counts[0] :], batch, config)
        terms["consistency"] = batch["consistency"] * consistency
    return terms


def _encoded(networks: Networks, batch: Batch) -> tuple[Tensor, list[int]]:
    """Latents z of source rounds, then of unlabeled target contexts, and how many there are of each."""
    source, target = batch.get("source.contexts"), batch.get("unlabeled")
    if source is not None and target is not None:
        return networks.encoder.forward_both(source, target), [len(source), len(target)]
    if source is not None:
        return networks.encoder(source, Domain.SOURCE), [len(source), 0]
    if target is not None:
        return networks.encoder(target, Domain.TARGET), [0, len(target)]
    return batch["alignment"].new_zeros(0, networks.encoder.latent_size), [0, 0]


def _expected(
    networks: Networks, z: Tensor, logits: Tensor, batch: Batch, config: BanditConfig
) -> Tensor:
    """Expected rewards (n, T, M): the head's, or θᵀz for the paper's objective."""
    if config.objective is Objective.PAPER:
        return (z @ batch["theta"].T)[:, None]
    return networks.head.expected(logits)


def _reward_terms(
    expected: Tensor, best: Tensor, domain: Domain, batch: Batch, config: BanditConfig
) -> dict[str, Tensor]:
    """L_RS, R and P on rounds of a domain; `expected` (n, T, M), `best` (m, T) of target contexts."""
    rewards = batch[f"{domain}.rewards"][:, None].expand(expected.shape[:2])
    arms = batch[f"{domain}.arms"][:, None, None].expand(*expected.shape[:2], 1)
    chosen = expected.gather(2, arms)[:, :, 0]  # (n, T)
    is_paper = config.objective is Objective.PAPER
    reward_loss = losses.squared_error if is_paper else losses.bandit_likelihood
    terms = {"reward": reward_loss(chosen, rewards).mean()}
    # R and P apply to aligned members only: without D, P pushes target latents away from all rewarded ones.
    if config.regression_weight:
        error = batch["alignment"] * losses.regression_error(chosen, rewards)
        terms["regression"] = config.regression_weight * error.mean()
    if config.prediction_weight:
        predicted = batch["alignment"] * losses.predicted_reward(best, chosen, rewards)
        terms["prediction"] = config.prediction_weight * predicted.mean()
    return terms


def _divergence(networks: Networks, z: Tensor, counts: list[int], batch: Batch) -> Tensor:
    """D of source and target latents: the mean over all members, where only aligned ones count."""
    strength = batch["strength"]  # λ of each member, (T,)
    reversed_ = losses.reverse_gradient(z, strength.repeat_interleave(z.shape[1] // len(strength)))
    logits = networks.discriminator.logits(reversed_)  # (n, aligned)
    divergence = losses.divergence(*logits.split(counts))
    return divergence * (logits.shape[1] / len(strength))


def _consistency(networks: Networks, logits: Tensor, batch: Batch, config: BanditConfig) -> Tensor:
    """C of target logits (n, T, M) with the teacher's on another augmentation of the same contexts.

    Like D it applies to the aligned members, as a mean over all. The teacher is the average over all
    members, which is right more often than one of them.
    """
    if networks.teacher is None:
        raise ValueError("consistency: the networks have no teacher")
    teacher_logits = networks.teacher.logits(batch["teacher"], Domain.TARGET)
    aligned = networks.discriminator.aligned
    fraction = aligned / logits.shape[1]
    logits = logits[:, -aligned:]
    if logits.shape[2] == 1:
        taught = teacher_logits[:, -aligned:].sigmoid()
        return fraction * losses.squared_error(logits.sigmoid(), taught).mean()
    taught = teacher_logits.softmax(dim=2).mean(dim=1)
    if "arm_prior_factor" in batch:
        taught = taught * batch["arm_prior_factor"]
        taught = taught / taught.sum(dim=1, keepdim=True)
    return fraction * losses.consistency(logits, taught, config.confidence_floor)


class _Sampler:
    """Draws the batches of one episode. A batch names its tensors:

    `source.*` and `target.*` (contexts, arms, rewards) are rounds, `unlabeled` are target contexts,
    `teacher` is another augmentation of these. The rest is the same in all batches of the episode:
    `alignment` and `strength` (T,) are each member's alignment factor and λ, `consistency` is the weight
    of C, `teacher_weight` and `average_weight` move the slow copies, `theta` and `arm_prior_factor` are
    inputs of their terms. Missing data is left out.
    """

    def __init__(self, inputs: EpisodeInputs, networks: Networks) -> None:
        data, self.config, seed = inputs.data, inputs.config, inputs.seed
        self.target = data.target.contexts
        self.device = self.target.device
        known = {domain: _Rounds(data.rounds, domain) for domain in Domain}
        self.rounds = {domain: rounds for domain, rounds in known.items() if rounds.count}
        self._rng = generator(seed, "batches", data.episode)
        self._augmentation = torch.Generator(self.device)
        self._augmentation.manual_seed(derived_seed(seed, "views", data.episode))
        self._constants = self._weights(networks, data.episode)
        if self.config.objective is Objective.PAPER:
            self._constants["theta"] = torch.from_numpy(inputs.theta).float().to(self.device)
        if networks.teacher is not None and self._matches_prior:
            factor = self._arm_prior_factor(networks, networks.teacher)
            self._constants["arm_prior_factor"] = factor

    def batches(self) -> Iterator[Batch]:
        """The batch of each step, drawn for several steps at once."""
        for first in range(0, self.config.steps_per_episode, _STEPS_DRAWN):
            steps = min(_STEPS_DRAWN, self.config.steps_per_episode - first)
            rows = {domain: self._rows(each.count, steps) for domain, each in self.rounds.items()}
            unlabeled = self._rows(len(self.target), steps) if self._uses_target else None
            for start in range(0, steps, STEPS_AT_ONCE):
                some = slice(start, start + STEPS_AT_ONCE)
                drawn: dict[str, Tensor] = {}
                for domain in self.rounds:
                    drawn |= self._drawn_rounds(domain, rows[domain][some])
                if unlabeled is not None:
                    drawn |= self._drawn_target(self.target[unlabeled[some]])
                for step in range(min(STEPS_AT_ONCE, steps - start)):
                    yield {**{n: values[step] for n, values in drawn.items()}, **self._constants}

    def newest(self) -> tuple[Tensor, Tensor]:
        """The newest contexts of source and target, without augmentation."""
        source = self.rounds.get(Domain.SOURCE)
        return source.newest(_NEWEST) if source else self.target[:0], self.target[-_NEWEST:]

    @property
    def _uses_target(self) -> bool:
        config = self.config
        is_used = config.consistency_weight or config.divergence_weight or config.prediction_weight
        return bool(is_used) and len(self.target) > 1

    def _rows(self, available: int, steps: int) -> Tensor:
        """Random rows, (steps, batch)."""
        rows = self._rng.integers(available, size=(steps, self.config.batch_size))
        return torch.from_numpy(rows).to(self.device)

    def _drawn_rounds(self, domain: Domain, rows: Tensor) -> dict[str, Tensor]:
        rounds, augments = self.rounds[domain], self.config.view_rounds
        contexts = rounds.contexts[rounds.rows[rows]]
        return {
            f"{domain}.contexts": self._augmented(contexts) if augments else contexts,
            f"{domain}.arms": rounds.models[rows],
            f"{domain}.rewards": rounds.rewards[rows],
        }

    def _drawn_target(self, contexts: Tensor) -> dict[str, Tensor]:
        if self.config.consistency_weight:
            return {"unlabeled": self._augmented(contexts), "teacher": self._augmented(contexts)}
        # Augmented if the source is: otherwise the discriminator would detect augmentation, not the domain.
        return {"unlabeled": self._augmented(contexts) if self.config.view_rounds else contexts}

    def _augmented(self, contexts: Tensor) -> Tensor:
        """A random augmentation of contexts (steps, batch, *shape)."""
        flat = contexts.flatten(0, 1)
        dropout, slot_kinds = self.config.view_dropout, self.config.slot_kinds
        return augmented(flat, self._augmentation, dropout, slot_kinds).view_as(contexts)

    def _weights(self, networks: Networks, episode: int) -> dict[str, Tensor]:
        config = self.config
        strength, consistency = (
            losses.ramped(weight, episode, config.divergence_ramp)
            for weight in (config.divergence_weight, config.consistency_weight)
        )
        alignment = alignment_factors(networks.encoder.members).to(self.device)
        numbers = {
            "consistency": consistency,
            "teacher_weight": 1.0 - config.teacher_decay,
            "average_weight": average_weight(config, episode),
        }
        return {
            "alignment": alignment,
            "strength": strength * alignment,
            **{name: torch.tensor(value, device=self.device) for name, value in numbers.items()},
        }

    @property
    def _matches_prior(self) -> bool:
        is_possible = Domain.SOURCE in self.rounds and self.config.model_count > 1
        is_enough = len(self.target) >= self.config.batch_size
        return self.config.match_arm_prior and is_possible and is_enough

    @torch.no_grad()
    def _arm_prior_factor(self, networks: Networks, teacher: SlowCopy) -> Tensor:
        """The factor (K,) from the arms that the networks predict on both domains as the episode starts."""
        count = _PRIOR_IMAGES if self.target.ndim == 4 else _PRIOR_VECTORS
        newest = self.rounds[Domain.SOURCE].newest(count)
        latents = networks.encode(newest, Domain.SOURCE)
        theta = self._constants.get("theta")
        predicted = networks.served_head(latents) if theta is None else latents @ theta.T
        (contexts,) = self._augmented(self.target[None, -_NEWEST:])
        taught = teacher.logits(contexts, Domain.TARGET).softmax(dim=2).mean(dim=1)
        return losses.arm_prior_factor(losses.best_arm_probabilities(predicted), taught)


def average_weight(config: BanditConfig, episode: int) -> float:
    """The weight of a step in the average that is served."""
    steps = episode * config.steps_per_episode
    return max(1.0 - config.average_decay, _AVERAGE_SPAN / (_AVERAGE_SPAN + steps))


class _Rounds:
    """The rounds of one domain that may train: `rows` (n,) of all `contexts`, models and rewards (n,)."""

    def __init__(self, rounds: RoundBatch, domain: Domain) -> None:
        device = rounds.contexts.device
        is_used = ~rounds.is_held_out & (rounds.is_target == (domain is Domain.TARGET))
        self.count = int(is_used.sum())
        self.contexts = rounds.contexts
        self.rows = torch.from_numpy(np.flatnonzero(is_used)).to(device)
        self.models = torch.from_numpy(rounds.arms[is_used]).to(device)
        self.rewards = torch.from_numpy(rounds.rewards[is_used].astype(np.float32)).to(device)

    def newest(self, count: int) -> Tensor:
        """The contexts of the last `count` rounds."""
        return self.contexts[self.rows[-count:]]
