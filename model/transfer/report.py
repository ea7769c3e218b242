"""The judgement of one encoder's transfer: diagnostics, label-free signs and a verdict."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.bandit.confidence import Confidence
from model.bandit.linucb import Factors
from model.bandit.policy import Policy, PolicyVersion
from model.config import BanditConfig
from model.encoders.base import FrozenEncoder
from model.encoders.vectors import CLIP
from model.memory import RoundBatch
from model.randomness import context_keys, derived_seed, generator
from model.rounds import Domain, Doubles
from model.training.networks import Networks
from model.transfer.abstention import Abstention, abstentions
from model.transfer.diagnostics import TransferReport, transfer_report
from model.transfer.verdict import BOUND_MARGIN, Signs, TransferVerdict, conditions, judged

LEAST = 32  # minimum of rounds and contexts: half of them fit probes, half judge
MOST = 512  # maximum of contexts used of each domain
_LEAST_SCALE = 1e-6  # features that vary less over the source say nothing of its contexts
RAW_SIZE = 128  # scaled raw contexts are projected to this many numbers at most
MOST_SKILL = 100.0  # of equal rewards above 0
_NEAR = (
    0.95  # a context is far if it is farther from the source than this share of the source's own
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of an encoder's transfer, without target rewards."""

    encoder_version: int
    report: TransferReport
    signs: Signs
    verdict: TransferVerdict
    conditions: tuple[str, ...]  # the lower bound holds unless one of these is so
    abstention: tuple[Abstention, ...]

    @property
    def expected(self) -> dict[str, float]:
        """The expected reward of the policy on the target, in [0, 1], and its lower bound."""
        reward = self.signs.expected_reward
        return {"reward": reward, "lower": max(0.0, reward - BOUND_MARGIN)}

    def as_dict(self) -> dict[str, Any]:
        return {
            "encoder_version": self.encoder_version,
            "expected": self.expected,
            "conditions": list(self.conditions),
            "abstention": [asdict(each) for each in self.abstention],
            "diagnostics": asdict(self.report),
            "signs": asdict(self.signs),
            "verdict": self.verdict.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class JudgingJob:
    """All inputs of a judgement. `run` is pure, so it may run in any process.

    `held_out` are source rounds that trained no encoder, `source` and `target` are contexts (m, *shape).
    `judging_theta` (M, d) predicts the held-out rewards; `factors` are served. `unpaid_arms` are names of
    arms that the source never paid.
    """

    networks: Networks
    config: BanditConfig
    factors: Factors
    judging_theta: Doubles
    confidence: Confidence | None
    version: PolicyVersion
    held_out: RoundBatch
    source: Tensor
    target: Tensor
    unpaid_arms: tuple[str, ...]
    seed: int

    def run(self) -> Judgement:
        source = self.networks.encode(self.held_out.contexts, Domain.SOURCE)
        target = self.networks.encode(self.target, Domain.TARGET)
        arms, rewards = self.held_out.arms, self.held_out.rewards
        predicted = source.double().cpu().numpy() @ self.judging_theta.T
        wanted = target.double().cpu().numpy() @ self.factors.target_theta.T
        at_chosen = predicted[np.arange(len(arms)), arms]
        confidence = self._confidences()
        report = transfer_report(source, target, at_chosen, rewards, wanted, self.seed)
        signs = Signs(
            expected_reward=float(confidence.mean()),
            far_share=self._far_share(),
            share_distance=_arm_prior_distance(predicted, wanted),
            source_skill=_skill(*_newest_of_each(self.held_out, at_chosen)),
            target_rank=report.target_rank,
            independent_members=self.confidence.members if self.confidence else 0,
            unpaid_arms=len(self.unpaid_arms),
            held_out_rounds=len(arms),
            target_contexts=len(target),
        )
        return Judgement(
            self.version.encoder_version,
            report,
            signs,
            judged(signs, self.unpaid_arms),
            conditions(signs, self.unpaid_arms),
            abstentions(confidence),
        )

    def _far_share(self) -> float:
        """The share of target contexts that are unlike any source context, by raw numbers."""
        source, target = self.source.flatten(1), self.target.flatten(1)
        center, scale = source.mean(dim=0), source.std(dim=0)
        scale[scale < _LEAST_SCALE] = torch.inf
        near, far = (((some - center) / scale).clamp(-CLIP, CLIP) for some in (source, target))
        if near.shape[1] > RAW_SIZE:
            rng = torch.Generator().manual_seed(derived_seed(self.seed, "raw projection"))
            directions = torch.randn(near.shape[1], RAW_SIZE, generator=rng).to(near.device)
            near, far = near @ directions, far @ directions
        distinct = torch.unique(near, dim=0)
        order = torch.from_numpy(generator(self.seed, "far share").permutation(len(distinct)))
        known, others = distinct[order.to(distinct.device)].tensor_split(2)
        if not len(others):
            return 1.0
        limit = _distances(others, known).quantile(_NEAR)
        return float((_distances(far, known) > limit).double().mean())

    def _confidences(self) -> Doubles:
        """The confidences of the served decisions for the target contexts; their mean is the expected reward."""
        contexts = self.target.cpu().numpy()
        if self.config.is_joint:
            contexts = contexts[:, None]
        encoder = FrozenEncoder.of(self.networks.served, self.target.device)
        policy = Policy(
            self.config, self.seed, encoder, self.factors, self.version, self.confidence
        )
        return policy.select_target(contexts).confidence


def _distances(contexts: Tensor, known: Tensor) -> Tensor:
    """The distance of each context (n, d) to the nearest known one, (n,)."""
    return torch.cdist(contexts, known).amin(dim=1)


def _arm_prior_distance(source: Doubles, target: Doubles) -> float:
    """Total variation between the arm priors: how often each arm is rated best."""
    priors = [
        np.bincount(scores.argmax(axis=1), minlength=scores.shape[1]) / len(scores)
        for scores in (source, target)
    ]
    return float(np.abs(priors[0] - priors[1]).sum() / 2)


def _newest_of_each(rounds: RoundBatch, predicted: Doubles) -> tuple[Doubles, Doubles]:
    """Predicted and observed reward of the newest round of each context: repeats are not independent."""
    keys = context_keys(rounds.contexts.cpu().numpy())[::-1]
    newest = len(keys) - 1 - np.unique(keys, return_index=True)[1]
    return predicted[newest], rounds.rewards[newest]


def _skill(predicted: Doubles, rewards: Doubles) -> float:
    """Standard errors by which the predictions order rewards better than chance: Spearman's ρ·√(n − 1).

    Equal rewards cannot be ordered: if all are above 0 nothing is left to learn, if all are 0 nothing was.
    """
    if len(rewards) < 2 or np.ptp(rewards) == 0:
        return MOST_SKILL if len(rewards) and rewards.min() > 0 else 0.0
    if np.ptp(predicted) == 0:
        return 0.0
    correlation = np.corrcoef(_ranks(predicted), _ranks(rewards))[0, 1]
    return min(MOST_SKILL, float(correlation) * math.sqrt(len(rewards) - 1))


def _ranks(values: Doubles) -> Doubles:
    """Ranks from 0; ties share their mean."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[which])
