"""The arms: what each earned in the source, and how often it is recommended for the target."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from model import Domain, Doubles, Integers, Learner
from service.pages.rendering import Table
from service.records import RewardRange
from service.reporting.figures import number

MOST_CONTEXTS = 2000  # target contexts that arms are counted for
MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Figures of each arm, (K,), and of all; means of nothing are NaN.

    `played` and `earned` are of remembered source rounds, the others of a sample of target contexts.
    """

    played: Integers
    earned: Doubles
    mean_earned: float
    recommended: Integers
    predicted: Doubles

    @property
    def contexts(self) -> int:
        return int(self.recommended.sum())


def arm_figures(learner: Learner, unit: RewardRange) -> ArmFigures:
    """What the learner's policy recommends now; not for contexts by arm."""
    rounds = learner.window.batch()
    is_source = ~rounds.is_target
    played, earned = rounds.arms[is_source], rounds.rewards[is_source]
    contexts = learner.contexts[Domain.TARGET].last(MOST_CONTEXTS).cpu().numpy()
    found = learner.policy().select_target(contexts)
    predicted = found.scores.mean[np.arange(len(found.arms)), found.arms].astype(np.float64)
    return ArmFigures(
        _counts(learner, played),
        _means(learner, played, earned, unit),
        unit.in_unit(_mean(earned)),
        _counts(learner, found.arms),
        _means(learner, found.arms, predicted, unit),
    )


def _counts(learner: Learner, arms: Integers) -> Integers:
    return np.bincount(arms, minlength=learner.config.arm_count)


def _means(learner: Learner, arms: Integers, values: Doubles, unit: RewardRange) -> Doubles:
    sums = np.bincount(arms, values, minlength=learner.config.arm_count)
    with np.errstate(invalid="ignore"):
        return unit.low + sums / _counts(learner, arms) * unit.width


def _mean(values: Doubles) -> float:
    return float(values.mean()) if len(values) else float("nan")


def arms_table(figures: ArmFigures, arms: Sequence[str]) -> Table:
    """A row for each arm, the most recommended first."""
    order = np.lexsort((-figures.played, -figures.recommended))[:MOST_ROWS]
    rows = [
        (
            arms[index],
            _share(int(figures.recommended[index]), figures.contexts),
            _known(figures.predicted[index]),
            f"{figures.played[index]:,}",
            _known(figures.earned[index]),
        )
        for index in order.tolist()
    ]
    titles = (
        "arm",
        "recommended",
        "predicted reward",
        "source rounds",
        "their mean reward",
    )
    return Table(titles, rows, {2, 3, 4})


def arms_lead(figures: ArmFigures, arm_count: int) -> str:
    """What the table counts."""
    if not figures.contexts:
        return "No target context was seen yet: upload some to see what is recommended for them."
    left = max(0, arm_count - MOST_ROWS)
    rest = f" The {left:,} arms that follow are not shown." if left else ""
    return (
        f"What the policy would choose for {figures.contexts:,} target contexts, and what each arm earned "
        f"in the source. Predicted rewards are no measurements.{rest}"
    )


def _share(count: int, total: int) -> str | Markup:
    if not total:
        return "–"
    share = count / total
    text = f"{count:,} ({share:.0%})"
    return Markup('{} <span class="bar"><b style="width:{}%"></b></span>').format(
        text, round(100 * share, 1)
    )


def _known(value: float) -> str:
    return number(None if np.isnan(value) else float(value))
