"""The figures of many runs as a Markdown table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from model.rounds import Doubles
from model.transfer.verdict import Word

Record = Mapping[str, Any]
WELL_DECIDED = 0.9  # no target decided as well as this should be called untrusted
TITLES = (
    *("variant", "method", "data", "runs", "earned", "expected", "mean absolute error", "Spearman"),
    *("bound holds", "bound below", "AUC", "AUC of the margin", "aligned", "weak", "do not trust"),
)


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


def _groups(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    families = _distinct(records, lambda each: str(each["dataset"]).split(":")[0])
    for family in families:
        yield family, [r for r in records if str(r["dataset"]).startswith(family)]
    exclusive = [r for r in records if r["is_exclusive"]]
    if len(families) > 1 and exclusive:
        yield "all exclusive", exclusive


def _cells(records: Sequence[Record]) -> list[str]:
    earned = np.array([r["earned"] for r in records])
    expected = np.array([r["judgement"]["expected"]["reward"] for r in records])
    lower = np.array([r["judgement"]["expected"]["lower"] for r in records])
    words = [r["judgement"]["verdict"]["word"] for r in records]
    return [
        str(len(records)),
        f"{earned.mean():.3f}",
        f"{expected.mean():.3f}",
        f"{np.abs(expected - earned).mean():.3f}",
        f"{spearman(expected, earned):.2f}" if len(records) > 2 else "–",
        f"{(earned >= lower).mean():.0%}",
        f"{(earned - lower).mean():.3f}",
        _mean_of(records, "auc"),
        _mean_of(records, "margin_auc"),
        *(str(words.count(word)) for word in Word),
    ]


def _mean_of(records: Sequence[Record], name: str) -> str:
    known = [r[name] for r in records if r[name] is not None]
    return f"{np.mean(known):.3f}" if known else "–"


def spearman(one: Doubles, other: Doubles) -> float:
    """The correlation of ranks; ties keep their order."""
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _distinct(records: Sequence[Record], key: Callable[[Record], str]) -> list[str]:
    return list(dict.fromkeys(map(key, records)))
