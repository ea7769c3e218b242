"""What a dashboard consists of, in plain values: the JSON and the documentation are made of them."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Grafana's names of units."""

    COUNT = "short"
    PER_SECOND = "cps"
    SECONDS = "s"
    BYTES = "bytes"
    SHARE = "percentunit"
    NUMBER = "none"


class Kind(StrEnum):
    """How a panel shows its series."""

    LINES = "lines"
    STACKED = "stacked"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression; `legend` names each series by its labels."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture; `note` says how to read it, beyond `limit` it turns red."""

    title: str
    unit: Unit
    queries: tuple[Query, ...]
    note: str = ""
    kind: Kind = Kind.LINES
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: its panels stand in the order of the list."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    has_experiments: bool = False


def quantiles(metric: str, legend: str = "") -> tuple[Query, ...]:
    """Median and p99 of a histogram over all processes."""
    per_bucket = f"sum by (le) (rate({metric}_bucket[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({level}, {per_bucket})", f"{legend} p{level * 100:g}".strip())
        for level in (0.5, 0.99)
    )
