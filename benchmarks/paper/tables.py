"""The figures as Markdown tables, next to the paper's."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.paper.pairs_summary import BASELINE, CHALLENGERS, MARGIN
from benchmarks.paper.paper_figures import ZERO_SHOT as IN_PAPER
from benchmarks.paper.summary import Summary

NONE = "–"


def table_parts(summary: Summary, folder: str) -> str:
    """All tables of one data set with their headings and plots; nothing for what was not run."""
    name = summary["dataset"]
    stem = f"{folder}/{file_name(name)}"
    parts = []
    if summary["zero_shot"]:
        parts += [
            f"### {name}: zero-shot target accuracy",
            f"![zero-shot]({stem}-zero-shot.png)",
            zero_shot_table(summary["zero_shot"]),
            f"### {name}: target accuracy by class, ours / the paper's",
            per_class_table(summary["zero_shot"]),
        ]
    if summary["ablation"]:
        parts += [
            f"### {name}: ablation of `daband`",
            f"![ablation]({stem}-ablation.png)",
            ablation_table(summary["ablation"]),
        ]
    if summary["continued"]:
        parts += [
            f"### {name}: continued training",
            f"![regret]({stem}-continued.png)",
            continued_table(summary["continued"], is_in_paper=summary["dataset"] in IN_PAPER),
        ]
    if parts:
        parts.insert(0, _about(summary["about"]))
        if warning := smoke_warning(summary):
            parts.insert(0, f"**{warning}**")
    return "\n\n".join(parts)


def smoke_warning(summary: Summary) -> str | None:
    """What to say of runs that are too few to compare methods."""
    tables = (summary[part] for part in ("zero_shot", "ablation", "continued"))
    seeds = [len(entry["seeds"]) for entries in tables for entry in entries.values()]
    if not seeds or max(seeds) > 1:
        return None
    rounds = ", ".join(f"{each:,}" for each in summary["about"]["rounds"])
    return (
        f"A smoke test: one seed and {rounds} source rounds show that everything runs. They do not "
        "show which method is better."
    )


def file_name(dataset: str) -> str:
    """A data set's name as part of a file's."""
    return dataset.replace(":", "-")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def zero_shot_table(entries: dict[str, Summary]) -> str:
    """A method a row."""
    return markdown(
        (
            *("method", "seeds", "target", "worst seed", "paper", "source test"),
            *("seeds agree", "refused", "s", "s training"),
        ),
        (
            (
                f"`{method}`",
                str(len(entry["seeds"])),
                _spread(entry),
                number(min(entry["seeds"])),
                _paper(entry),
                number(entry["source_test"]),
                number(entry["agreement"]),
                f"{entry['refusals']:.1f} of {entry['updates']:.0f}",
                number(entry["seconds"], 0),
                number(entry["training_seconds"], 0),
            )
            for method, entry in entries.items()
        ),
    )


def per_class_table(entries: dict[str, Summary]) -> str:
    """A method a row, an arm a column, ours / the paper's."""
    classes = max(len(entry["per_class"]) for entry in entries.values())
    rows = []
    for method, entry in entries.items():
        theirs = (entry["paper"] or {}).get("per_class") or [None] * classes
        pairs = zip(entry["per_class"], theirs, strict=True)
        rows.append([f"`{method}`", *(f"{number(a, 2)} / {number(b, 2)}" for a, b in pairs)])
    return markdown(["method", *map(str, range(classes))], rows)


def ablation_table(entries: dict[str, Summary]) -> str:
    """A column of the paper's a row, in its order."""
    return markdown(
        ("variant", "seeds", "target", "worst seed", "paper", "source test"),
        (
            (
                column,
                str(len(entry["seeds"])),
                _spread(entry),
                number(min(entry["seeds"])),
                _paper(entry),
                number(entry["source_test"]),
            )
            for column, entry in entries.items()
        ),
    )


def continued_table(entries: dict[str, Summary], *, is_in_paper: bool) -> str:
    """Cumulative regret of a method a row; the paper plots it without figures."""
    return markdown(
        ("method", "seeds", "target rounds", "cumulative regret", "÷ from scratch", "paper"),
        (
            (
                f"`{method}`",
                str(len(entry["seeds"])),
                str(entry["curve"]["rounds"][-1]),
                _spread(entry, 1),
                number(entry["of_scratch"], 2),
                "lowest" if is_in_paper and method == "daband" else NONE,
            )
            for method, entry in entries.items()
        ),
    )


def pairs_part(summary: Summary, folder: str) -> str:
    """The pairs with heading, plot, totals and every pair; nothing if none was run."""
    if not summary["pairs"]:
        return ""
    return "\n\n".join(
        (
            f"### Every pair of domains against `{BASELINE}`",
            f"Runs on {', '.join(summary['about']['devices'])}. The paper has no such figures. In brackets: a "
            "difference's standard error.",
            f"![gains]({folder}/pairs.png)",
            gains_table(summary["gains"]),
            pairs_table(summary["pairs"]),
        )
    )


def gains_table(gains: dict[str, Summary]) -> str:
    """A method a row: its gain over the baseline."""
    return markdown(
        (
            f"over `{BASELINE}`",
            "pairs",
            "worst pair",
            "mean over pairs",
            "mean over sets",
            f"pairs below −{MARGIN}",
            f"95 % lower bound below −{MARGIN}",
            "seeds agree",
        ),
        (
            (
                f"`{method}`",
                str(gain["pair_count"]),
                f"{signed(gain['worst'])} ({gain['worst_pair']})",
                signed(gain["mean_over_pairs"]),
                signed(gain["mean_over_sets"]),
                str(len(gain["below_margin"])),
                str(len(gain["bound_below_margin"])),
                number(gain["agreement"]),
            )
            for method, gain in gains.items()
        ),
    )


def pairs_table(pairs: dict[str, Summary]) -> str:
    """A pair a row; behind a difference stands its standard error over the seeds."""
    head = ["pair", "rounds", f"`{BASELINE}`"]
    for method in CHALLENGERS:
        head += [f"`{method}`", "difference"]
    rows = []
    for pair, entry in pairs.items():
        row = [pair, str(entry["rounds"]), _spread(entry[BASELINE])]
        for method in CHALLENGERS:
            is_there = method in entry
            row.append(_spread(entry[method]) if is_there else NONE)
            row.append(_difference(entry, method) if is_there else NONE)
        rows.append(row)
    return markdown(head, rows)


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return NONE if value is None else f"{value:.{digits}f}"


def signed(value: float) -> str:
    """A difference."""
    return f"{value:+.3f}".replace("-", "−")


def _spread(entry: Summary, digits: int = 3) -> str:
    """One seed has no spread."""
    mean = number(entry["mean"], digits)
    return f"{mean} ± {entry['std']:.{digits}f}" if len(entry["seeds"]) > 1 else mean


def _difference(entry: Summary, method: str) -> str:
    error = number(entry["standard_errors"][method])
    return f"{signed(entry['differences'][method])} ({error})"


def _paper(entry: Summary) -> str:
    figure: dict[str, Any] | None = entry["paper"]
    return f"{figure['mean']:.4f} ± {figure['std']:.2f}" if figure else NONE


def _about(about: Summary) -> str:
    rounds = ", ".join(f"{each:,}" for each in about["rounds"])
    tests = ", ".join(f"{each:,}" for each in about["test_count"])
    return (
        f"Runs on {', '.join(about['devices'])}: {rounds} source rounds, {tests} test contexts; "
        "mean ± sample standard deviation over the seeds."
    )
