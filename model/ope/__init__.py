"""Off-policy evaluation: a policy's value, estimated from rounds that another policy logged.

Everything is a pure function of logged rounds, in one pass, with memory that does not grow with the
log. `docs/evaluation.md` states the assumptions.

Other packages import its public names from here.
"""

from model.ope.candidates import (
    EvaluationPolicy,
    FixedArmCandidate,
    FrozenCandidate,
    LearningCandidate,
    TableCandidate,
    UniformCandidate,
)
from model.ope.estimates import EvaluationOptions, ValueEstimator
from model.ope.intervals import clopper_pearson
from model.ope.logged import COLUMNS, LoggedRounds
from model.ope.rejection import RejectionReplay
from model.ope.reward_model import RidgeRewards
from model.ope.target import SourceRounds, target_value
from model.ope.valuation import LEAST_EFFECTIVE

__all__ = [
    "COLUMNS",
    "LEAST_EFFECTIVE",
    "EvaluationOptions",
    "EvaluationPolicy",
    "FixedArmCandidate",
    "FrozenCandidate",
    "LearningCandidate",
    "LoggedRounds",
    "RejectionReplay",
    "RidgeRewards",
    "SourceRounds",
    "TableCandidate",
    "UniformCandidate",
    "ValueEstimator",
    "clopper_pearson",
    "target_value",
]
