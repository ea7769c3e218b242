"""The learner: a pure fold of rounds into (encoder, A, b, θ).

Its state depends only on the configuration, the seed and the folded rounds in order. After every
`episode_length` source rewards an encoder update is due: `pending` holds its frozen training set. An
update that falls due while another is pending stays due until `begin_update`.
`train` computes the update without touching the learner, so it may run elsewhere while folding goes
on. `conclude` makes its outcome part of the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from model.bandit.confidence import LEAST_ROUNDS, MOST_LATENTS, Agreement, Confidence, HeldOut
from model.bandit.linucb import LinUCB
from model.bandit.policy import Policy, PolicyVersion
from model.config import BanditConfig, GateRule, HoldoutRule, StatisticsRule
from model.encoders.base import FrozenEncoder
from model.memory import HeldOutRounds, Reservoir, RoundBatch, RoundWindow
from model.randomness import context_keys
from model.rounds import (
    Domain,
    Doubles,
    Floats,
    Integers,
    Phase,
    RewardedRound,
    RoundBlock,
    checked_contexts,
    checked_domain,
    checked_rows,
)
from model.training.episode import EpisodeInputs, Trained, TrainingSet, train_episode
from model.training.networks import Networks
from model.training.optimiser import Moments, Recordings
from model.training.rebuild import (
    EncodedRounds,
    empty_statistics,
    encode_rounds,
    held_out_statistics,
    rebuilt_statistics,
    trained_statistics,
)
from model.training.schedule import ContextCounts, NextUpdate, Progress, next_update
from model.transfer.diagnostics import TransferReport, effective_rank
from model.transfer.gate import Verdict, is_finite, judge, refused
from model.transfer.report import LEAST, MOST, JudgingJob

_DISTILLED = 2048  # target contexts that the target's θ is fitted on


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an encoder update: new networks, loss terms and the gate's verdict.

    `encoded`: the training set's rounds under the new encoder, if the update ran in this process.
    """

    episode: int
    networks: Networks
    moments: Moments
    losses: dict[str, float]
    verdict: Verdict
    encoded: EncodedRounds | None = None


class TrainingJob(EpisodeInputs):
    """A due encoder update. `run` is pure, so it may run in any process."""

    __slots__ = ()

    def run(self, recordings: Recordings | None = None) -> Outcome:
        """Train, distil the head, rebuild on the training set and pass the gate."""
        trained = train_episode(self, recordings)
        encoded = EncodedRounds.under(trained.networks, self.data.rounds)
        if trained.losses and is_finite(encoded.latents):
            self._distil(trained.networks, encoded.latents)
        verdict = self._verdict(trained, encoded.latents)
        return Outcome(
            self.data.episode,
            trained.networks,
            trained.moments,
            trained.losses,
            verdict,
            encoded,
        )

    def _distil(self, networks: Networks, rounds: torch.Tensor) -> None:
        """Fit the target's θ to the head, on latents of the rounds and of the target."""
        if networks.distilled is None:
            return
        target = networks.encode(self.data.target.contexts[-_DISTILLED:], Domain.TARGET)
        groups = [networks.head_output(z) for z in (rounds, target) if len(z)]
        networks.distilled.fit(groups, self.data.seen, self.config.ridge)

    def _verdict(self, trained: Trained, latents: torch.Tensor) -> Verdict:
        values = (*trained.networks.state_dict().values(), *trained.moments.values())
        if not is_finite(*values):
            return refused("training diverged: parameters are not finite")
        if not is_finite(latents):
            return refused("training diverged: latents are not finite")
        rounds, config = self.data.rounds, self.config
        theta = self.theta
        if config.statistics is StatisticsRule.REBUILD:
            theta = trained_statistics(latents, rounds, config).factors().theta
        judged = rounds.is_held_out & ~rounds.is_target
        held_out = rounds.rows(judged)
        after = latents[torch.from_numpy(judged).to(latents.device)]
        before = encode_rounds(self.networks, held_out)
        rank = effective_rank(latents)
        return judge(held_out, (after, theta), (before, self.theta), rank, config)


class Learner:
    """Folds source rewards (and target rewards once opened), keeps contexts, updates the encoder."""

    def __init__(self, config: BanditConfig, seed: int, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.seed = seed
        self.device = torch.device(device)
        self.phase = Phase.ZERO_SHOT
        self.offset = 0
        self.episode = 0  # of the newest update
        self.covered_episodes = 0  # full episodes that no update is due for any more
        self.encoder_version = 0
        self.reward_counts = dict.fromkeys(Domain, 0)
        self.uploaded_count = 0  # contexts that came in bulk, without a decision
        self.networks = Networks.initial(config, seed, self.device)
        self.moments: Moments = {}
        self.confidence: Confidence | None = None  # of target decisions
        self.statistics = empty_statistics(self.networks, config)
        # A and b of the held-out rounds alone, so that θ without them can judge by them.
        self.held_out: LinUCB | None = None
        if config.holdout is HoldoutRule.CONTEXTS:
            size = self.networks.encoder.latent_size
            self.held_out = LinUCB(config.model_count, size, config.ridge)
        self.window = RoundWindow(config.rebuild_window, config.context_shape, self.device)
        self.contexts = {
            domain: Reservoir(
                config.reservoir_size, config.context_shape, self.device, seed, domain
            )
            for domain in Domain
        }
        self._holding_out = HeldOutRounds(
            seed, config.holdout_share, by_context=self.held_out is not None
        )
        self.pending: TrainingJob | None = None
        self._recordings = Recordings()
        self.refreeze()

    def refreeze(self) -> None:
        """Fold and serve with the present encoder."""
        self._frozen = FrozenEncoder.of(self.networks.served, self.device)

    @property
    def rounds_to_update(self) -> int:
        """How many rewards are left until the episode is full, at least 1."""
        return self.config.episode_length - self.progress.rewards_in_episode

    @property
    def progress(self) -> Progress:
        """What the next update depends on."""
        full, left = divmod(sum(self.reward_counts.values()), self.config.episode_length)
        return Progress(
            due_updates=full - self.covered_episodes,
            rewards_in_episode=left,
            rounds_kept=len(self.window),
            contexts=self.context_counts,
        )

    @property
    def context_counts(self) -> ContextCounts:
        """How many contexts of each domain have come."""
        return ContextCounts(
            *(self.contexts[each].count for each in (Domain.SOURCE, Domain.TARGET))
        )

    def next_update(self, seen: ContextCounts | None) -> NextUpdate | None:
        """The update that should begin now, unless one is pending; see `model.training.schedule`."""
        if self.pending is not None:
            return None
        return next_update(self.config, self.progress, seen)

    def begin_update(self, covers: int) -> None:
        """Begin an update that stands for so many of those that are due.

        Nothing happens while one is pending, and before the first reward.
        """
        if self.pending is None and self.window.count:
            self.covered_episodes += min(covers, self.progress.due_updates)
            self._begin_episode()

    def request_update(self) -> None:
        """Begin an update now, or make sure that one is due after the one that is pending."""
        if self.pending is None:
            self.begin_update(covers=min(1, self.progress.due_updates))
        elif not self.progress.due_updates:
            self.covered_episodes -= 1

    def observe(self, *rounds: RewardedRound) -> None:
        """Fold rewards one by one under the current encoder; an invalid round changes nothing."""
        for round_ in rounds:
            context = checked_contexts(round_.context, self.config.context_shape)
            block = RoundBlock(
                references=np.array([round_.reference]),
                is_target=np.array([checked_domain(round_.domain) is Domain.TARGET]),
                contexts=context[None],
                arms=np.array([round_.arm]),
                rewards=np.array([round_.reward]),
                propensities=np.array([round_.propensity]),
            )
            self.observe_block(block)

    def observe_block(self, block: RoundBlock, latents: Floats | None = None) -> None:
        """Fold each round of a block in order, with the same bits however the rounds are cut into blocks.

        A block with an invalid round changes nothing. `latents` (n, d) are φ of the contexts, for a
        caller that already has them and needs no exact repetition.
        """
        if not len(block):
            return
        block = self._checked_block(block)
        start = 0
        while start < len(block):
            end = start + self.rounds_to_update
            part = block.part(start, end)
            self._fold(part, self._encoded(part) if latents is None else latents[start:end])
            start = end

    def observe_context(self, reference: int, domain: Domain, context: object) -> None:
        """Keep an unlabeled context of the configured shape."""
        checked = checked_contexts(context, self.config.context_shape)
        self.observe_decided(np.array([reference]), domain, checked[None])

    def observe_decided(self, references: Integers, domain: Domain, contexts: Floats) -> None:
        """`observe_context` of each context (n, *shape) in order, with the same bits."""
        self._check_shape(contexts, len(references))
        self.contexts[checked_domain(domain)].add(references, checked_rows(contexts))

    def observe_contexts(self, references: Sequence[int], domain: Domain, contexts: object) -> None:
        """Keep unlabeled contexts (n, *shape), in order."""
        checked = checked_contexts(contexts, self.config.context_shape)
        self._check_shape(checked, len(references))
        self.contexts[checked_domain(domain)].add(np.array(references, dtype=np.int64), checked)
        self.uploaded_count += len(references)

    def advance(self, offset: int) -> None:
        """Note that the log has been folded up to `offset`."""
        if offset < self.offset:
            raise ValueError(f"offset: cannot go back from {self.offset} to {offset}")
        self.offset = offset

    def open_target(self) -> None:
        """Enter the continued phase: target rewards fold from now on."""
        self.phase = Phase.CONTINUED

    def train(self) -> Outcome | None:
        """Run the pending encoder update, if there is one, and conclude it at once."""
        if self.pending is None:
            return None
        outcome = self.pending.run(self._recordings)
        self.conclude(outcome)
        return outcome

    def conclude(self, outcome: Outcome) -> None:
        """End the pending update: activate an accepted encoder, otherwise keep the present one.

        Under a manual gate an accepted encoder is not activated here; an operator may `activate` it.
        """
        self.dismiss(outcome.episode)
        if outcome.verdict.is_accepted and self.config.gate is GateRule.AUTO:
            self.activate(outcome.networks, outcome.moments, outcome.encoded)

    def dismiss(self, episode: int) -> None:
        """End the pending update without its encoder."""
        if self.pending is None or self.pending.data.episode != episode:
            raise ValueError(f"conclude: episode {episode} is not pending")
        self.pending = None

    def activate(
        self, networks: Networks, moments: Moments, encoded: EncodedRounds | None = None
    ) -> None:
        """Serve these networks from now on, with A and b rebuilt under them (unless `keep`).

        `encoded`: rounds under these networks; used if they are exactly the remembered rounds.
        """
        self.networks, self.moments = networks, moments
        self.encoder_version += 1
        self.refreeze()
        if encoded is None or not self.window.holds(encoded.rounds):
            encoded = EncodedRounds.under(networks, self.window.batch())
        if self.config.statistics is StatisticsRule.REBUILD:
            self._rebuild(encoded)
        self.confidence = self._calibrated(encoded)

    def rebuild(self) -> None:
        """A and b from the remembered rounds under the current encoder."""
        self._rebuild(EncodedRounds.under(self.networks, self.window.batch()))

    def _rebuild(self, encoded: EncodedRounds) -> None:
        self.statistics = rebuilt_statistics(encoded, self.networks, self.window.count, self.config)
        if self.held_out is not None:
            self.held_out = held_out_statistics(encoded, self.config)

    @property
    def _judging_theta(self) -> Doubles:
        """The θ that judges encoders by held-out rounds, (M, d)."""
        if self.held_out is None:
            return self.statistics.factors().theta
        return self.statistics.without(self.held_out).factors().theta

    @property
    def can_be_judged(self) -> bool:
        """Whether both domains have been seen often enough to judge an encoder's transfer."""
        counts = (self.window.held_out_count, len(self.contexts[Domain.TARGET].references))
        return min(counts) >= LEAST

    def judging(self, arm_names: Sequence[str] = ()) -> JudgingJob | None:
        """The job that judges the present encoder's transfer; None before both domains have been seen.

        Its reasons name arms by `arm_names`, or else by their index.
        """
        if not self.can_be_judged:
            return None
        rounds = self.window.batch()
        held_out = rounds.rows(rounds.is_held_out & ~rounds.is_target).newest(MOST)
        names = arm_names or [str(arm) for arm in range(self.config.arm_count)]
        return JudgingJob(
            networks=self.networks,
            config=self.config,
            factors=self.statistics.factors(),
            judging_theta=self._judging_theta,
            confidence=self.confidence,
            version=PolicyVersion(0, self.encoder_version, self.offset),
            held_out=held_out,
            source=rounds.rows(~rounds.is_target).newest(MOST).contexts,
            target=self.contexts[Domain.TARGET].last(MOST),
            unpaid_arms=tuple(names[arm] for arm in self._unpaid_arms(rounds)),
            seed=self.seed,
        )

    def _unpaid_arms(self, rounds: RoundBatch) -> list[int]:
        """The arms that no remembered source round paid."""
        if self.config.is_joint:
            return []
        known = rounds.rows(~rounds.is_target)
        paid = np.bincount(known.arms, known.rewards, minlength=self.config.arm_count)
        return [int(arm) for arm in np.flatnonzero(paid == 0)]

    def transfer(self) -> TransferReport | None:
        """The present transfer report; None before both domains have been seen."""
        job = self.judging()
        return None if job is None else job.run().report

    def policy(self, version: int = 0, device: torch.device | str | None = None) -> Policy:
        """The frozen policy of this moment, on the learner's device unless another is named."""
        encoder = self._frozen
        if device is not None and torch.device(device) != encoder.device:
            encoder = FrozenEncoder.of(self.networks.served, torch.device(device))
        names = PolicyVersion(version, self.encoder_version, self.offset)
        factors = self.statistics.factors()
        return Policy(self.config, self.seed, encoder, factors, names, self.confidence)

    def _calibrated(self, encoded: EncodedRounds) -> Confidence | None:
        """The confidence under the present encoder; None before there are enough target contexts."""
        contexts = self.contexts[Domain.TARGET].last(MOST_LATENTS)
        if len(contexts) < LEAST_ROUNDS:
            return None
        is_judge = encoded.rounds.is_held_out & ~encoded.rounds.is_target
        chosen = np.flatnonzero(is_judge)[-2 * MOST_LATENTS :]
        held_out = self._held_out_rounds(encoded, chosen)
        return Confidence.fitted(held_out, self._agreement(encoded, chosen, contexts), self.config)

    def _agreement(self, encoded: EncodedRounds, held_out: Integers, target: Tensor) -> Agreement:
        if self.config.is_joint:  # a single context has no best arm
            return Agreement(0, 1.0)
        latents = encoded.latents[torch.from_numpy(held_out).to(self.device)]
        source, unlabeled = map(
            self.networks.independent_choices,
            (latents, self.networks.encode(target, Domain.TARGET)),
        )
        return Agreement.of(source, unlabeled)

    def _held_out_rounds(self, encoded: EncodedRounds, chosen: Integers) -> HeldOut:
        rounds = encoded.rounds
        keys = context_keys(rounds.contexts[torch.from_numpy(chosen)].cpu().numpy())
        _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        return HeldOut(
            predicted=_doubles(encoded.latents)[chosen] @ self._calibrating_theta.T,
            arms=rounds.arms[chosen],
            rewards=rounds.rewards[chosen],
            propensities=rounds.propensities[chosen],
            repeats=counts[which],
        )

    @property
    def _calibrating_theta(self) -> Doubles:
        """The θ that calibrates the confidence, (M, d): the target's, as its decisions are rated."""
        if self.held_out is None:
            return self.statistics.factors().target_theta
        distilled = self.networks.distilled  # no held-out round trained the head
        return self._judging_theta if distilled is None else distilled.theta.cpu().numpy()

    def _encoded(self, block: RoundBlock) -> Floats:
        """φ of every round under its own domain's normalisation, (n, d)."""
        if not block.is_target.any():
            return self._frozen.one_by_one(block.contexts, Domain.SOURCE)
        latents = np.zeros((len(block), self._frozen.latent_size), dtype=np.float32)
        for domain in Domain:
            rows = block.is_target == (domain is Domain.TARGET)
            latents[rows] = self._frozen.one_by_one(block.contexts[rows], domain)
        return latents

    def _fold(self, block: RoundBlock, latents: Floats) -> None:
        """Fold rounds of one episode."""
        first = sum(self.reward_counts.values()) + 1
        held_out = self._holding_out.among(first, block.contexts)
        self.statistics.fold(latents, block.arms, block.rewards)
        if self.held_out is not None:
            self.held_out.fold(latents[held_out], block.arms[held_out], block.rewards[held_out])
        target_count = int(np.count_nonzero(block.is_target))
        self.reward_counts[Domain.TARGET] += target_count
        self.reward_counts[Domain.SOURCE] += len(block) - target_count
        self.window.add(block, held_out)
        total = first - 1 + len(block)
        if total % self.config.episode_length == 0 and self.pending is None:
            self.begin_update(covers=1)

    def _begin_episode(self) -> None:
        self.episode += 1
        source, target = (self.contexts[domain].sample() for domain in Domain)
        counts = self.context_counts
        data = TrainingSet(
            self.episode, self.window.count, self.window.batch(), source, target, counts
        )
        self.pending = TrainingJob(
            data, self.networks, self.moments, self._judging_theta, self.config, self.seed
        )

    def _checked_block(self, block: RoundBlock) -> RoundBlock:
        config = self.config
        if self.phase is Phase.ZERO_SHOT and block.is_target.any():
            raise ValueError("reward: target rewards are refused in the zero-shot phase")
        if not _lie_between(0, 1, block.propensities):
            raise ValueError("propensity: must lie in (0, 1], or be 0 if it is unknown")
        if not _lie_between(0, 1, block.rewards):
            raise ValueError("reward: must be a number in [0, 1]")
        self._check_shape(block.contexts, len(block))
        arms = np.zeros_like(block.arms) if config.is_joint else block.arms
        if arms.dtype.kind not in "iu" or not _lie_between(0, config.arm_count - 1, arms):
            raise ValueError(f"arm: not one of {config.arm_count} arms")
        return replace(block, arms=arms, contexts=checked_rows(block.contexts))

    def _check_shape(self, contexts: Floats, count: int) -> None:
        if contexts.shape != (count, *self.config.context_shape):
            raise ValueError(f"context: expected {count} of {self.config.context_shape}")


def _lie_between(low: float, high: float, values: Doubles | Integers) -> bool:
    """Whether all values are numbers that do; NaN lies between no bounds."""
    return values.dtype.kind in "iuf" and bool(((values >= low) & (values <= high)).all())


def _doubles(latents: torch.Tensor) -> Doubles:
    return np.asarray(latents.double().cpu().numpy())
