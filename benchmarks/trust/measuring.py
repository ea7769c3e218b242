"""One run: what was expected of the target without its rewards, and what they say."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.datasets.registry import load
from benchmarks.datasets.task import as_floats
from benchmarks.paper.budget import default_rounds
from benchmarks.paper.jobs import checked_out
from benchmarks.paper.methods import BY_NAME
from benchmarks.paper.playing import play
from benchmarks.transfer_verdicts import area
from benchmarks.trust.variants import altered
from model.bandit.confidence import decision_scores
from model.config import RECIPE
from model.rounds import Doubles
from model.transfer.abstention import FLOORS

Key = tuple[str, str, str, int, int, int]
_KEY = ("dataset", "variant", "method", "seed", "rounds", "recipe")


def key_of(record: Mapping[str, Any]) -> Key:
    """What a finished run is known by."""
    dataset, variant, method, seed, rounds, recipe = (record[name] for name in _KEY)
    return (dataset, variant, method, seed, rounds, recipe)


@dataclass(frozen=True, slots=True)
class Job:
    """A run to make; `rounds` 0: as many as the benchmark of the paper plays."""

    dataset: str
    variant: str
    method: str
    seed: int
    device: str
    data: str | None
    rounds: int = 0

    def key(self) -> Key:
        """What its record is known by."""
        rounds = self.rounds or default_rounds(self.dataset)
        return (self.dataset, self.variant, self.method, self.seed, rounds, RECIPE.version)

    def run(self) -> dict[str, Any]:
        """Play, judge without target rewards, then compare with them."""
        task = altered(load(self.dataset, self.data), self.variant, self.seed)
        method = BY_NAME[self.method]
        rounds = self.rounds or default_rounds(self.dataset)
        learner = play(task, method.config(task), self.seed, rounds, self.device).learner
        judging = learner.judging(task.arms)
        contexts, rewards = as_floats(task.test_contexts), task.test_rewards.astype(np.float64)
        selection = learner.policy().select_target(contexts)
        earned = rewards[np.arange(len(rewards)), selection.arms]
        is_right = earned >= rewards.max(axis=1) - 1e-9
        margins = decision_scores(selection.scores.mean.astype(np.float64), is_joint=False)
        return {
            **asdict(replace(self, rounds=rounds, data=None)),
            "recipe": RECIPE.version,
            "commit": checked_out(),
            "is_exclusive": task.exclusive_rewards,
            "earned": float(earned.mean()),
            "best": float(rewards.max(axis=1).mean()),
            "auc": _known(area(selection.confidence, is_right)),
            "margin_auc": _known(area(margins, is_right)),
            "abstention": _by_floor(selection.confidence, earned),
            "judgement": None if judging is None else judging.run().as_dict(),
        }


def _by_floor(confidence: Doubles, earned: Doubles) -> list[dict[str, float]]:
    """What decisions above each confidence floor were expected to earn, and what they earned."""
    return [
        {
            "confidence_floor": floor,
            "decided": int((confidence >= floor).sum()),
            "expected": float(confidence[confidence >= floor].mean()),
            "earned": float(earned[confidence >= floor].mean()),
        }
        for floor in FLOORS
        if (confidence >= floor).any()
    ]


def _known(value: float) -> float | None:
    """None where all decisions are right, or none: there is nothing to order."""
    return None if math.isnan(value) else value
