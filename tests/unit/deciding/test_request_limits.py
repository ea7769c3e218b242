"""Requests over an estimate are refused, with the largest batch that passes."""

from dataclasses import replace

import pytest

from model import ContextKind
from service.deciding.request_limits import RequestLimits
from service.errors import BatchTooLarge
from service.experiment_spec import ExperimentSpec
from service.limits import MEBIBYTE, DecisionLimits

ARMS = tuple(f"arm-{number}" for number in range(1000))
SHARED = ExperimentSpec("many", ARMS, ContextKind.SHARED, (8,), "linucb")
PER_ARM = replace(SHARED, context_kind=ContextKind.PER_ARM)
NAMED_LATER = replace(PER_ARM, arms=())
ROOMY = DecisionLimits(1 << 40, 1 << 40, 1e9)


def largest(limits: DecisionLimits, spec: ExperimentSpec, count: int) -> int:
    """What is stated for this many rounds of one domain, which are refused."""
    with pytest.raises(BatchTooLarge) as refused:
        RequestLimits(limits).check_rounds(spec, spec.bandit_config(), [[ARMS]] * count)
    found: int = refused.value.members["largest_batch"]
    return found


@pytest.mark.parametrize("spec", [SHARED, PER_ARM, NAMED_LATER])
@pytest.mark.parametrize(
    "limits",
    [
        replace(ROOMY, answer_bytes=8 * MEBIBYTE),
        replace(ROOMY, event_bytes=8 * MEBIBYTE),
        replace(ROOMY, deciding_seconds=0.1),
    ],
    ids=["answer", "event", "seconds"],
)
def test_the_stated_batch_is_the_largest_that_passes(limits: DecisionLimits, spec: ExperimentSpec):
    most = largest(limits, spec, 1000)
    assert 0 < most < 1000
    RequestLimits(limits).check_rounds(spec, spec.bandit_config(), [[ARMS]] * most)
    assert largest(limits, spec, most + 1) == most


def test_fewer_eligible_arms_are_a_larger_batch():
    rounds = [[ARMS[:10]]] * 1000
    RequestLimits(DecisionLimits()).check_rounds(SHARED, SHARED.bandit_config(), rounds)


def test_one_round_that_takes_too_much_says_what_helps():
    limits = RequestLimits(replace(ROOMY, answer_bytes=1000))
    with pytest.raises(BatchTooLarge, match="offer fewer arms") as refused:
        limits.check_rounds(SHARED, SHARED.bandit_config(), [[ARMS]])
    assert refused.value.members["largest_batch"] == 0


def test_an_experiment_without_declared_arms_shows_no_limits():
    assert RequestLimits(DecisionLimits()).shown(NAMED_LATER) is None
