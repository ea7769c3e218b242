"""One encoder update: a bounded number of Adam steps on the objective.

The result is a function of the training set, the networks it starts from, the configuration and
the seed. All that is random (batches and views) is drawn here, for several steps at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
from model.training.networks import Networks
from model.training.objective import Inputs
from model.training.optimiser import Moments, stepping
from model.training.shares import arm_prior_factor, best_arm_probabilities

STEPS_AT_ONCE = 16  # bounds the memory of batches and views
_STEPS_DRAWN = 256  # a multiple of the former; bounds the memory of their rows
_SETTLING = 1024  # newest contexts of a domain from which batch statistics are taken
_SHARES_SAMPLE, _SHARES_IMAGES = 4096, 1024  # images take longer to encode
_SPAN = 10.0  # one part in so many of all steps is averaged while they are few
_UNLABELED = "unlabeled"


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """What an encoder update may see, frozen at its offset in the log, after `seen` rounds in all."""

    episode: int
    seen: int
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
    for encoder in networks.encoders:
        encoder.prepare(data.source.contexts, data.target.contexts, data.rounds.contexts)
    if not networks.encoder.is_learned or not config.steps_per_episode:
        return Trained(networks, {}, {})
    batches = _Batches(networks, data, config, seed, theta)
    if not batches.labelled:
        return Trained(networks, moments, {})
    return _trained(networks, moments, batches, config)


def _trained(
    networks: Networks, moments: Moments, batches: "_Batches", config: BanditConfig
) -> Trained:
    chunks = batches.chunks()
    first = next(chunks)
    with stepping(networks, moments, config, first[0]) as stepper:
        stepper.run(first)
        for chunk in chunks:
            stepper.run(chunk)
        moments = stepper.moments()
        means = {n: float(total) / config.steps_per_episode for n, total in stepper.totals.items()}
    networks.eval().served.recalibrate(*batches.newest())
    return Trained(networks, moments, means)


class _Batches:
    """What the steps of one episode work on."""

    def __init__(
        self, networks: Networks, data: TrainingSet, config: BanditConfig, seed: int, theta: Doubles
    ) -> None:
        self.config = config
        self.members = networks.encoder.members
        self.target = data.target.contexts
        self.device = self.target.device
        labelled = {domain: _Labelled(data.rounds, domain) for domain in Domain}
        self.labelled = {domain: rounds for domain, rounds in labelled.items() if rounds.count}
        self.rng = generator(seed, "batches", data.episode)
        self.view_rng = torch.Generator(self.device)
        self.view_rng.manual_seed(derived_seed(seed, "views", data.episode))
        self.constants = self._weights(data.episode)
        if config.objective is Objective.PAPER:
            self.constants["theta"] = torch.from_numpy(theta).float().to(self.device)
        self.constants.update(self._shares(networks))

    def chunks(self) -> Iterator[list[Inputs]]:
        """The inputs of all steps, a few steps at once."""
        # Rows are drawn for many steps: a GPU ends what it does for every copy from the host.
        for first in range(0, self.config.steps_per_episode, _STEPS_DRAWN):
            steps = min(_STEPS_DRAWN, self.config.steps_per_episode - first)
            rows = {name: self._rows(count, steps) for name, count in self._counts().items()}
            for start in range(0, steps, STEPS_AT_ONCE):
                yield self._steps(
                    {name: some[start : start + STEPS_AT_ONCE] for name, some in rows.items()}
                )

    def newest(self) -> tuple[Tensor, Tensor]:
        """The newest contexts of source and target, as they came."""
        source = self.labelled.get(Domain.SOURCE)
        return source.newest(_SETTLING) if source else self.target[:0], self.target[-_SETTLING:]

    def _counts(self) -> dict[str, int]:
        """From how many rounds of a domain, and unlabeled contexts, batches are drawn."""
        counts: dict[str, int] = {domain: some.count for domain, some in self.labelled.items()}
        config = self.config
        is_used = config.consistency_weight or config.divergence_weight or config.prediction_weight
        if is_used and len(self.target) > 1:
            counts[_UNLABELED] = len(self.target)
        return counts

    def _rows(self, available: int, steps: int) -> Tensor:
        """Random rows, (steps, batch)."""
        rows = self.rng.integers(available, size=(steps, self.config.batch_size))
        return torch.from_numpy(rows).to(self.device)

    def _steps(self, rows: Mapping[str, Tensor]) -> list[Inputs]:
        """The inputs of some steps; `rows` (steps, batch) are those of `_counts`."""
        drawn: dict[str, Tensor] = {}
        for domain, rounds in self.labelled.items():
            chosen = rows[domain]
            contexts = rounds.contexts[rounds.rows[chosen]]
            is_viewed = self.config.view_rounds
            drawn[f"{domain}.contexts"] = self._viewed(contexts) if is_viewed else contexts
            drawn[f"{domain}.arms"] = rounds.models[chosen]
            drawn[f"{domain}.rewards"] = rounds.rewards[chosen]
        if _UNLABELED in rows:
            drawn.update(self._unlabeled(self.target[rows[_UNLABELED]]))
        count = len(next(iter(drawn.values())))
        return [
            {**{name: values[step] for name, values in drawn.items()}, **self.constants}
            for step in range(count)
        ]

    def _unlabeled(self, contexts: Tensor) -> dict[str, Tensor]:
        if self.config.consistency_weight:
            return {"student_view": self._viewed(contexts), "teacher_view": self._viewed(contexts)}
        # As the source's: else the discriminator tells views from contexts, not source from target.
        return {_UNLABELED: self._viewed(contexts) if self.config.view_rounds else contexts}

    def _viewed(self, contexts: Tensor) -> Tensor:
        """A random view of contexts (steps, batch, *shape)."""
        flat = contexts.flatten(0, 1)
        return augmented(flat, self.view_rng, self.config.view_dropout).view_as(contexts)

    def _weights(self, episode: int) -> dict[str, Tensor]:
        config = self.config
        strength, consistency = (
            losses.ramped(weight, episode, config.divergence_ramp)
            for weight in (config.divergence_weight, config.consistency_weight)
        )
        shares = alignment_factors(self.members).to(self.device)
        numbers = {
            "consistency": consistency,
            "teacher_weight": 1.0 - config.teacher_decay,
            "average_weight": average_weight(config, episode),
        }
        return {
            "shares": shares,
            "strength": strength * shares,
            **{name: torch.tensor(value, device=self.device) for name, value in numbers.items()},
        }

    @torch.no_grad()
    def _shares(self, networks: Networks) -> dict[str, Tensor]:
        """How the domains differ in arm shares, as the networks see it at the start of the episode."""
        source = self.labelled.get(Domain.SOURCE)
        if (
            source is None
            or self.config.model_count < 2
            or len(self.target) < self.config.batch_size
        ):
            return {}
        if networks.teacher is None or not self.config.match_arm_prior:
            return {}
        sample = _SHARES_IMAGES if self.target.ndim == 4 else _SHARES_SAMPLE
        newest = source.newest(sample)
        odds = best_arm_probabilities(self._predicted(networks, newest, Domain.SOURCE))
        (views,) = self._viewed(self.target[None, -_SETTLING:])
        taught = networks.teacher.logits(views, Domain.TARGET).softmax(dim=2).mean(dim=1)
        return {"arm_prior_factor": arm_prior_factor(odds, taught)}

    def _predicted(self, networks: Networks, contexts: Tensor, domain: Domain) -> Tensor:
        latents = networks.encode(contexts, domain)
        if "theta" in self.constants:
            return latents @ self.constants["theta"].T
        return networks.served_prediction(latents)


def average_weight(config: BanditConfig, episode: int) -> float:
    """What a step weighs in the average: early on it spans a tenth of all steps, for they learn fast."""
    steps = episode * config.steps_per_episode
    return max(1.0 - config.average_decay, _SPAN / (_SPAN + steps))


class _Labelled:
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
        """The contexts of the last `count` of them."""
        return self.contexts[self.rows[-count:]]
