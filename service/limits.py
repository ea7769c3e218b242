"""How much one experiment may need, and how many there may be."""

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The most that an experiment may need, by the estimates of `model.budget`."""

    snapshot_bytes: int = 128 * MEBIBYTE
    learner_bytes: int = 2048 * MEBIBYTE
    update_bytes: int = 4096 * MEBIBYTE
    update_seconds: float = 300.0
    reward_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most experiments of one tenant and of all tenants together."""

    per_tenant: int = 10_000
    in_all: int = 20_000
