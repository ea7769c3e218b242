"""One pass over a log for any number of candidates; the result is JSON-compatible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from model import Domain, Doubles
from model.ope import EvaluationOptions, LoggedRounds, RidgeRewards, ValueEstimator, clopper_pearson
from service.evaluating.candidates import Made
from service.evaluating.target_sample import TargetSample
from service.formats.records import LogHeader

Valued = dict[str, Any]  # a candidate's part of the result

CURVE_POINTS = 120
FIRST_PARTS = 64  # rounds between two points of the curve in the first batch


@dataclass
class Curve:
    """Value and confidence sequence as the log grows, thinned to a bounded number of points."""

    points: list[tuple[int, float | None, float, float]] = field(default_factory=list)
    _stride: int = 1
    _seen: int = 0

    def add(self, point: tuple[int, float | None, float, float]) -> None:
        """Add a point; most points of a long curve are dropped."""
        self._seen += 1
        if self._seen % self._stride:
            return
        self.points.append(point)
        if len(self.points) >= CURVE_POINTS:
            self.points, self._stride = self.points[1::2], 2 * self._stride


@dataclass
class Entrant:
    """A candidate with its estimates so far."""

    name: str
    made: Made
    estimator: ValueEstimator
    curve: Curve = field(default_factory=Curve)
    trained_on: int = 0

    def add(self, rounds: LoggedRounds, predicted: Any, policy: Doubles | None = None) -> None:
        """Add rounds, with the candidate's probabilities if they are known."""
        if policy is None:
            policy = self.made.candidate.probabilities(rounds)
        # Small parts first, so that short logs have a curve as well.
        size = FIRST_PARTS if not self.curve.points else max(1, len(rounds))
        for number, part in enumerate(rounds.parts(size)):
            rows = slice(number * size, number * size + len(part))
            self.estimator.add(part, policy[rows], predicted[rows])
            if len(part):
                ends = self.estimator.sequence.interval
                self.curve.add(
                    (self.estimator.support().rounds, self.estimator.robust_value, *ends)
                )
        if self.made.trained_offset is not None:
            self.trained_on += int((rounds.references <= self.made.trained_offset).sum())

    def result(self, target: dict[str, Any] | None) -> dict[str, Any]:
        """The valuation with the other figures of reports."""
        found = self.estimator.valuation().as_dict()
        bootstrap = self.estimator.bootstrap()
        if self.trained_on:
            found["warnings"] = (
                *found["warnings"],
                f"{self.trained_on} of the rounds had been used to train this version:"
                " its value may be too high",
            )
        return {
            "name": self.name,
            **found,
            "bootstrap": None if bootstrap is None else list(bootstrap),
            "trained_on": self.trained_on,
            "target": target,
            "curve": [list(point) for point in self.curve.points],
        }


class Evaluation:
    """Evaluates each candidate on a log, batch by batch."""

    def __init__(
        self,
        header: LogHeader,
        candidates: Mapping[str, Made],
        options: EvaluationOptions,
        domain: Domain = Domain.SOURCE,
        sample: TargetSample | None = None,
    ) -> None:
        self.rounds = 0
        self._header = header
        self._options = options
        self._domain = domain
        self._sample = sample
        self._reward_sum = 0.0
        self._model = RidgeRewards(len(header.arms), header.is_per_arm, seed=options.seed)
        self._entrants = [
            Entrant(name, made, ValueEstimator(options)) for name, made in candidates.items()
        ]

    def add(self, rounds: LoggedRounds, policies: Mapping[str, Doubles] | None = None) -> None:
        """Add rounds; raises `ValueError` if they cannot be weighted.

        `policies`: the probabilities of candidates that were asked elsewhere, by name.
        """
        rounds.check()
        predicted = self._model.predict_then_learn(rounds)
        for entrant in self._entrants:
            entrant.add(rounds, predicted, (policies or {}).get(entrant.name))
        if self._sample is not None:
            self._sample.add(rounds)
        self.rounds += len(rounds)
        self._reward_sum += float(rounds.rewards.sum())

    def result(self, learned: Mapping[str, Valued] | None = None) -> dict[str, Any]:
        """The JSON-compatible result; candidates with the highest value first.

        `learned`: candidates that were valued elsewhere, by name, in an evaluation of their own.
        """
        found = [each.result(self._target(each)) for each in self._entrants]
        found += (learned or {}).values()
        # By name as well, so that equal values have one order.
        found.sort(key=_rank)
        return {
            "domain": self._domain.value,
            "rounds": self.rounds,
            "confidence": self._options.confidence,
            "max_weight": self._options.max_weight,
            "logged": self._logged(),
            "candidates": found,
        }

    def _logged(self) -> dict[str, Any]:
        """The value of the logging policy."""
        if not self.rounds:
            return {"value": None, "interval": None}
        ends = clopper_pearson(self._reward_sum, self.rounds, self._options.confidence)
        return {"value": self._reward_sum / self.rounds, "interval": list(ends)}

    def _target(self, entrant: Entrant) -> dict[str, Any] | None:
        if self._sample is None:
            return None
        return self._sample.value(entrant.made, self._options)


def _rank(found: Valued) -> tuple[float, str]:
    value = found["value"]
    return -np.inf if value is None else -value, found["name"]
