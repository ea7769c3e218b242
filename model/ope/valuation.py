"""The result of an evaluation: estimates, their support and warnings."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from model.ope.intervals import Interval, Moments

LEAST_EFFECTIVE = 30.0  # below this effective sample size no interval is stated
TOO_FEW = f"the effective sample size is below {LEAST_EFFECTIVE:.0f}"
NO_BOUND = "no bound on the weights was known before the data"


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimator's value, with its interval, or the reason why none is stated."""

    estimator: str
    value: float | None
    standard_error: float | None = None
    interval: Interval | None = None
    method: str | None = None
    no_interval: str | None = None


@dataclass(frozen=True, slots=True)
class Support:
    """How well the log supports the policy.

    `overlap` is the fraction of the policy's choices that the log could have made; `None` if the log
    keeps only the chosen arm's propensity.
    """

    rounds: int
    effective_rounds: float
    mean_weight: float
    max_weight: float
    overlap: float | None
    is_uniform_log: bool
    version_count: int


@dataclass(frozen=True, slots=True)
class Valuation:
    """The complete valuation of one policy."""

    support: Support
    estimates: dict[str, Estimate]
    headline: str
    sequence: Interval | None
    sequence_bound: float | None
    switch: float
    warnings: tuple[str, ...]

    @property
    def value(self) -> float | None:
        return self.estimates[self.headline].value

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        for each in (*found["estimates"].values(), found):
            for name in ("interval", "sequence"):
                if each.get(name) is not None:
                    each[name] = list(each[name])
        found["switch"] = None if math.isinf(self.switch) else self.switch
        found["value"] = self.value
        return found


def standard_error(total: float, squares: float, n: float) -> float | None:
    """The standard error of a mean of n values, from their sum and sum of squares."""
    if n < 2:
        return None
    return math.sqrt(max(0.0, squares - total**2 / n) / (n - 1.0) / n)


def warnings_of(support: Support, sums: Moments) -> tuple[str, ...]:
    """Warnings about the estimates."""
    found = []
    if support.effective_rounds < LEAST_EFFECTIVE:
        found.append(
            f"the effective sample size {support.effective_rounds:.1f} is below"
            f" {LEAST_EFFECTIVE:.0f}: no interval is stated"
        )
    if support.overlap is not None and support.overlap < 1.0 - 1e-9:
        found.append(
            f"the log could not have made {1.0 - support.overlap:.1%} of the policy's choices:"
            " their value is unknown, so the estimates are biased"
        )
    error = standard_error(sums.w, sums.w2, sums.n)
    if error and abs(support.mean_weight - 1.0) > 4.0 * error:
        found.append(
            f"the mean weight {support.mean_weight:.3f} is far from 1: the propensities are wrong,"
            " or the policy chooses arms that the log never chose"
        )
    return tuple(found)
