"""The judgement of one encoder's transfer: diagnostics, label-free signs and a verdict."""

from dataclasses import dataclass
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
from model.randomness import derived_seed
from model.rounds import Domain, Doubles
from model.training.networks import Networks
from model.transfer.diagnostics import TransferReport, domain_accuracy, transfer_report
from model.transfer.verdict import Signs, TransferVerdict, judged

LEAST = 32  # minimum of rounds and contexts: half of them fit probes, half judge
MOST = 512  # maximum of contexts used of each domain
_LEAST_SCALE = 1e-6  # replaces the spread of constant raw features
RAW_SIZE = 128  # raw contexts are projected to this many numbers at most


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of an encoder's transfer, without target rewards."""

    encoder_version: int
    report: TransferReport
    signs: Signs
    verdict: TransferVerdict

    def as_dict(self) -> dict[str, Any]:
        return {
            "encoder_version": self.encoder_version,
            "diagnostics": self.report.as_dict(),
            "signs": self.signs.as_dict(),
            "verdict": self.verdict.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class JudgingJob:
    """All inputs of a judgement. `run` is pure, so it may run in any process.

    `held_out` are source rounds that trained no encoder, `target` are contexts (m, *shape).
    `judging_theta` (M, d) predicts the held-out rewards; `factors` are served.
    """

    networks: Networks
    config: BanditConfig
    factors: Factors
    judging_theta: Doubles
    confidence: Confidence | None
    version: PolicyVersion
    held_out: RoundBatch
    target: Tensor
    seed: int

    def run(self) -> Judgement:
        source = self.networks.encode(self.held_out.contexts, Domain.SOURCE)
        target = self.networks.encode(self.target, Domain.TARGET)
        arms, rewards = self.held_out.arms, self.held_out.rewards
        predicted = source.double().cpu().numpy() @ self.judging_theta.T
        wanted = target.double().cpu().numpy() @ self.factors.target_theta.T
        at_chosen = predicted[np.arange(len(arms)), arms]
        report = transfer_report(source, target, at_chosen, rewards, wanted, self.seed)
        signs = Signs(
            domain_accuracy=report.domain_accuracy,
            raw_domain_accuracy=self._raw_accuracy(),
            share_distance=_arm_prior_distance(predicted, wanted),
            mean_confidence=self._mean_confidence(),
            source_explained=_explained(at_chosen, rewards),
            target_rank=report.target_rank,
            held_out_rounds=len(arms),
            target_contexts=len(target),
        )
        return Judgement(self.version.encoder_version, report, signs, judged(signs))

    def _raw_accuracy(self) -> float:
        """The domain accuracy on raw contexts, standardised by the source."""
        source, target = self.held_out.contexts.flatten(1), self.target.flatten(1)
        if source.shape[1] > RAW_SIZE:
            rng = torch.Generator().manual_seed(derived_seed(self.seed, "raw projection"))
            directions = torch.randn(source.shape[1], RAW_SIZE, generator=rng).to(source.device)
            source, target = source @ directions, target @ directions
        center, scale = source.mean(dim=0), source.std(dim=0).clamp_min(_LEAST_SCALE)
        limited = [((some - center) / scale).clamp(-CLIP, CLIP) for some in (source, target)]
        return domain_accuracy(limited[0], limited[1], self.seed)

    def _mean_confidence(self) -> float:
        contexts = self.target.cpu().numpy()
        if self.config.is_joint:
            contexts = contexts[:, None]
        encoder = FrozenEncoder.of(self.networks.served, self.target.device)
        policy = Policy(
            self.config, self.seed, encoder, self.factors, self.version, self.confidence
        )
        return float(policy.select_target(contexts).confidence.mean())


def _arm_prior_distance(source: Doubles, target: Doubles) -> float:
    """Total variation between the arm priors: how often each arm is rated best."""
    priors = [
        np.bincount(scores.argmax(axis=1), minlength=scores.shape[1]) / len(scores)
        for scores in (source, target)
    ]
    return float(np.abs(priors[0] - priors[1]).sum() / 2)


def _explained(predicted: Doubles, rewards: Doubles) -> float:
    """1 − squared error of the predictions over that of predicting the mean."""
    spread = float(((rewards - rewards.mean()) ** 2).sum())
    return 1.0 - float(((rewards - predicted) ** 2).sum()) / spread if spread > 0 else 1.0
