"""The resource limits of one experiment and of one request to it, and the quotas of experiments."""

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The upper limits on an experiment's estimates by `model.budget`."""

    snapshot_bytes: int = 128 * MEBIBYTE
    learner_bytes: int = 2048 * MEBIBYTE
    update_bytes: int = 4096 * MEBIBYTE
    update_seconds: float = 300.0
    reward_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """The upper limits on the estimates of a request for decisions by `model.budget`.

    The events of a request are one transaction, for which all other writers wait.
    """

    answer_bytes: int = 64 * MEBIBYTE
    event_bytes: int = 16 * MEBIBYTE
    deciding_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """The maximum number of experiments of one tenant and of all tenants together."""

    per_tenant: int = 10_000
    in_all: int = 20_000
