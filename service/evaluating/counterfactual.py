"""Counterfactual replay: the estimated value of an experiment under another configuration."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.ope import (
    EvaluationOptions,
    LearningCandidate,
    LoggedRounds,
    RejectionReplay,
    RidgeRewards,
    ValueEstimator,
)
from service.evaluating.candidates import fresh_learner
from service.evaluating.evaluation import Curve
from service.evaluating.experiment_log import (
    decisions_and_contexts_of,
    header_of,
    weight_bound,
)
from service.experiment_spec import ExperimentSpec
from service.formats.batches import Batches
from service.records import Experiment
from service.storage.events.log import EventLog


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The changed configuration, and the correction for the logging policy.

    `rejection`: the learner sees only rounds that it would have chosen itself. `weighting`: it sees all
    rounds, and each is weighted by π/p.
    """

    changes: Mapping[str, Any]
    correction: str = "rejection"
    confidence: float = 0.95


class CounterfactualReplay:
    """Replays an experiment's log with a fresh learner."""

    def __init__(self, spec: ExperimentSpec, wanted: Counterfactual, bound: float | None) -> None:
        header = header_of(spec)
        changes = dict(wanted.changes)
        method = changes.pop("method", spec.method)
        self._learner = fresh_learner(header, spec, method, changes)
        self._rejection = RejectionReplay(self._learner)
        self._candidate = LearningCandidate(self._learner)
        self._is_rejection = wanted.correction == "rejection"
        self._model = RidgeRewards(len(header.arms), header.is_per_arm, seed=spec.seed)
        self._estimator = ValueEstimator(EvaluationOptions(wanted.confidence, bound, spec.seed))
        self._curve = Curve()
        self._reward_sum = 0.0

    def add(self, rounds: LoggedRounds) -> None:
        rounds.check()
        predicted = self._model.predict_then_learn(rounds)
        if self._is_rejection:
            policy, weights = self._rejection.play(rounds)
            self._estimator.add(rounds, policy, predicted, weights)
        else:
            self._estimator.add(rounds, self._candidate.probabilities(rounds), predicted)
        if len(rounds):
            ends = self._estimator.sequence.interval
            self._curve.add((self._estimator.support().rounds, self._estimator.robust_value, *ends))
        self._reward_sum += float(rounds.rewards.sum())

    def result(self) -> dict[str, Any]:
        """The estimated value and the logged value."""
        found = self._estimator.valuation().as_dict()
        rounds = found["support"]["rounds"]
        return {
            "rounds": rounds,
            "kept_rounds": self._rejection.kept_count if self._is_rejection else rounds,
            "encoder_version": self._learner.encoder_version,
            "logged": {"value": self._reward_sum / rounds if rounds else None},
            **found,
            "curve": [list(point) for point in self._curve.points],
        }


async def replay_with(
    experiment: Experiment,
    event_log: EventLog,
    wanted: Counterfactual,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Replay an experiment's log with the changes; `on_progress` gets the events done and all of them."""
    spec = ExperimentSpec.of(experiment)
    bound = await weight_bound(experiment, event_log)
    replay = await asyncio.to_thread(CounterfactualReplay, spec, wanted, bound)
    batches = Batches(header_of(spec))
    async for page in decisions_and_contexts_of(experiment, event_log, experiment.head_offset):
        for offset, decision in page:
            if (batch := batches.add(decision, offset)) is not None:
                await asyncio.to_thread(replay.add, batch)
                on_progress(offset, experiment.head_offset)
        if page:
            on_progress(page[-1][0], experiment.head_offset)
    if (batch := batches.rest()) is not None:
        await asyncio.to_thread(replay.add, batch)
    result = await asyncio.to_thread(replay.result)
    return {
        "experiment": experiment.name,
        "changes": dict(wanted.changes),
        "correction": wanted.correction,
        **result,
    }
