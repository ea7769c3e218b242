"""The figures beside the goals of docs/results.md that stored runs decide; a test compares the page."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.paper.pairs_summary import MARGIN
from benchmarks.paper.tables import signed
from benchmarks.trust.against import gains
from benchmarks.trust.page import (
    DABAND,
    PLUS,
    SHIFTS,
    WORST_SHIFT,
    Yardstick,
    is_reported,
    is_vector,
    task_means,
    unchanged,
)
from benchmarks.trust.summary import WELL_DECIDED, Figures, Record
from model.transfer.verdict import Word


def goal_figures(records: Sequence[Record], yardstick: Yardstick) -> Mapping[str, str]:
    """The figure of each goal, by the goal's words."""
    return {
        **_expected(records),
        **_verdicts(records),
        **_shifted(records),
        **_reported(records, yardstick),
        **_images(records),
    }


def _expected(records: Sequence[Record]) -> dict[str, str]:
    runs = [r for r in unchanged(records, PLUS) if r["is_exclusive"]]
    figures = Figures.of(runs)
    below = [r["margin_auc"] - r["auc"] for r in runs if r["auc"] < r["margin_auc"]]
    return {
        "mean absolute error of the expected reward ≤ 0.08": f"{figures.error:.3f}",
        "Spearman's ρ of expected and earned reward ≥ 0.85": f"{figures.correlation:.2f}",
        "the lower bound holds in ≥ 95 % of the runs": f"{figures.holds:.0%}",
        "the lower bound is ≤ 0.25 below the truth on average": f"{figures.below:.3f}",
        "AUC of the confidence within a target ≥ 0.71": f"{figures.auc:.3f}",
        "that AUC is never below the plain margin's": (
            f"below in {len(below)} of {len(runs)} runs, by {max(below):.2f} at most"
        ),
    }


def _verdicts(records: Sequence[Record]) -> dict[str, str]:
    judged = [r for r in records if r["judgement"] is not None and r["method"] == PLUS]

    def called(word: Word, some: Sequence[Record]) -> str:
        words = [r["judgement"]["verdict"]["word"] for r in some]
        return f"{words.count(word)} of {len(words)}"

    well = [r for r in judged if r["earned"] / r["best"] >= WELL_DECIDED]
    plain = [r for r in well if r["variant"] == "plain"]
    shifted = [r for r in well if r["variant"] in SHIFTS]
    absent = [r for r in judged if r["variant"] == "new arm" and r["is_exclusive"]]
    named = sum("never paid" in " ".join(r["judgement"]["verdict"]["reasons"]) for r in absent)
    of = {each: [r for r in judged if r["variant"] == each] for each in ("permuted", "noise")}
    return {
        f"no target decided ≥ {WELL_DECIDED} right is called `do not trust`": (
            f"{called(Word.DO_NOT_TRUST, plain)}; under label shift "
            f"{called(Word.DO_NOT_TRUST, shifted)}"
        ),
        "permuted arms are never called `aligned`": called(Word.ALIGNED, of["permuted"]),
        "noise for a target is never called `aligned`": called(Word.ALIGNED, of["noise"]),
        "an arm that is absent from the source is named": f"{named} of {len(absent)}",
    }


def _shifted(records: Sequence[Record]) -> dict[str, str]:
    found = [each for each in gains(records) if each.method == PLUS and each.variant in SHIFTS]
    worst = min(found, key=lambda each: each.mean)
    return {
        "label shift: ≥ 0.05 ahead of `nlinucb` on average": signed(
            float(np.mean([each.mean for each in found]))
        ),
        f"label shift: no pair below −{WORST_SHIFT}": (
            f"{sum(each.mean < -WORST_SHIFT for each in found)} of {len(found)} below, "
            f"{signed(worst.mean)} at worst"
        ),
    }


def _reported(records: Sequence[Record], yardstick: Yardstick) -> dict[str, str]:
    found = [
        each
        for each in gains(records)
        if (each.method, each.variant) == (PLUS, "plain") and is_reported(each.pair)
    ]
    vectors = [each for each in found if is_vector(each.pair)]
    means = [float(np.mean([each.mean for each in some])) for some in (vectors, found)]
    bounds = [each.bound for each in found if each.bound is not None]
    ours = task_means(unchanged(records, PLUS), lambda name: is_reported(name) and is_vector(name))
    full = np.mean([value for name, value in yardstick.items() if is_reported(name)])
    return {
        "reported data: ≥ 0.07 ahead of `nlinucb` on average": (
            f"{signed(means[0])} on vectors, {signed(means[1])} with DIGIT both ways"
        ),
        f"reported data: 95 % lower bound above −{MARGIN} on every pair": (
            f"below on {sum(bound < -MARGIN for bound in bounds)} of {len(bounds)}"
        ),
        "reported vectors: at least full information on average": (
            f"{np.mean(list(ours.values())):.3f} against {full:.3f}"
        ),
    }


def _images(records: Sequence[Record]) -> dict[str, str]:
    found = [
        each
        for each in gains(records)
        if (each.method, each.variant) == (DABAND, "plain") and not is_vector(each.pair)
    ]
    worst = min(found, key=lambda each: each.mean)
    digit, printed = (
        [r["earned"] for r in unchanged(records, method) if r["dataset"] == "digit"]
        for method in (PLUS, "daband-paper")
    )
    return {
        f"images: `daband` nowhere more than {MARGIN} below `nlinucb`": (
            f"{signed(worst.mean)} at worst ({worst.pair})"
        ),
        "`daband-plus` on DIGIT ≥ 0.95, five seeds": (
            f"{np.mean(digit):.3f} ({min(digit):.3f} to {max(digit):.3f})"
        ),
        "its spread (sample standard deviation) ≤ 0.01": f"{np.std(digit, ddof=1):.3f}",
        "`daband-paper` on DIGIT, five seeds; the paper reports 0.60": (
            f"{np.mean(printed):.3f} ({min(printed):.3f} to {max(printed):.3f})"
        ),
    }
