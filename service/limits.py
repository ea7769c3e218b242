"""The resource limits of one experiment and the quotas of experiments."""

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
class Quotas:
    """The maximum number of experiments of one tenant and of all tenants together."""

    per_tenant: int = 10_000
    in_all: int = 20_000
