"""The figures of many runs as a Markdown table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from benchmarks.paper.tables import NONE
from model.rounds import Doubles
from model.transfer.verdict import Word

Record = Mapping[str, Any]
WELL_DECIDED = 0.9  # no target decided as well as this should be called untrusted
TITLES = (
    *("variant", "method", "data", "runs", "earned", "expected", "mean absolute error", "Spearman"),
    *("bound holds", "bound below", "AUC", "AUC of the margin", "aligned", "weak", "do not trust"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was expected of some runs beside what they earned."""

    runs: int
    earned: float
    expected: float
    error: float  # mean absolute error of the expected reward
    correlation: float | None  # Spearman's; None for two runs, which are ordered or not
    holds: float  # share of the runs whose lower bound holds
    below: float  # how far the bound lies below the truth
    auc: float | None
    margin_auc: float | None

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """From judged runs."""
        earned = np.array([r["earned"] for r in records])
        expected = np.array([r["judgement"]["expected"]["reward"] for r in records])
        lower = np.array([r["judgement"]["expected"]["lower"] for r in records])
        return cls(
            runs=len(records),
            earned=float(earned.mean()),
            expected=float(expected.mean()),
            error=float(np.abs(expected - earned).mean()),
            correlation=spearman(expected, earned) if len(records) > 2 else None,
            holds=float((earned >= lower).mean()),
            below=float((earned - lower).mean()),
            auc=_mean_of(records, "auc"),
            margin_auc=_mean_of(records, "margin_auc"),
        )

    def cells(self) -> list[str]:
        """As cells of a table."""
        return [
            str(self.runs),
            f"{self.earned:.3f}",
            f"{self.expected:.3f}",
            f"{self.error:.3f}",
            signed_or_none(self.correlation, 2),
            f"{self.holds:.0%}",
            signed_or_none(self.below),
            signed_or_none(self.auc),
            signed_or_none(self.margin_auc),
        ]


def table(records: Sequence[Record]) -> str:
    """A row for each variant, method and data set, and for all data sets together."""
    lines = [f"| {' | '.join(TITLES)} |", "|---" * len(TITLES) + "|"]
    for variant in _distinct(records, lambda each: each["variant"]):
        for method in _distinct(records, lambda each: each["method"]):
            found = [r for r in records if (r["variant"], r["method"]) == (variant, method)]
            for data, some in _groups(found):
                lines.append(f"| {variant} | {method} | {data} | {' | '.join(_cells(some))} |")
    return "\n".join(lines)


def findings(records: Sequence[Record]) -> Iterator[str]:
    """The counts that must be zero."""
    words = [r["judgement"]["verdict"]["word"] for r in records]
    well = [r["earned"] / r["best"] >= WELL_DECIDED for r in records]
    missed = sum(good and word == Word.DO_NOT_TRUST for good, word in zip(well, words, strict=True))
    yield f"{missed} of {sum(well)} targets decided ≥ {WELL_DECIDED} right are called untrusted"
    for variant in ("noise", "permuted"):
        found = [w for r, w in zip(records, words, strict=True) if r["variant"] == variant]
        yield f"{found.count(Word.ALIGNED)} of {len(found)} {variant} targets are called aligned"
    absent = [r["judgement"]["verdict"]["reasons"] for r in records if r["variant"] == "new arm"]
    named = sum(any("never paid" in reason for reason in reasons) for reasons in absent)
    yield f"{named} of {len(absent)} absent arms are named in the reasons"


def signed_or_none(value: float | None, digits: int = 3) -> str:
    """A number with a real minus sign, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", "−")


def family_of(task: str) -> str:
    """The data set that a task belongs to."""
    return task.partition(":")[0]


def _groups(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    families = _distinct(records, lambda each: family_of(each["dataset"]))
    for family in families:
        yield family, [r for r in records if family_of(r["dataset"]) == family]
    exclusive = [r for r in records if r["is_exclusive"]]
    if len(families) > 1 and exclusive:
        yield "all exclusive", exclusive


def _cells(records: Sequence[Record]) -> list[str]:
    words = [r["judgement"]["verdict"]["word"] for r in records]
    return [*Figures.of(records).cells(), *(str(words.count(word)) for word in Word)]


def _mean_of(records: Sequence[Record], name: str) -> float | None:
    known = [r[name] for r in records if r[name] is not None]
    return float(np.mean(known)) if known else None


def spearman(one: Doubles, other: Doubles) -> float:
    """The correlation of ranks; equal values share their mean rank, and equal values alone tell nothing: 0."""
    ours, theirs = _ranks(one), _ranks(other)
    return float(np.corrcoef(ours, theirs)[0, 1]) if ours.std() and theirs.std() else 0.0


def _ranks(values: Doubles) -> Doubles:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Doubles = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def _distinct(records: Sequence[Record], key: Callable[[Record], str]) -> list[str]:
    return list(dict.fromkeys(map(key, records)))
