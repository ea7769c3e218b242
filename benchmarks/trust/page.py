"""The tables of docs/results.md that stored runs fill."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.datasets.registry import IMAGES, Part, part_of
from benchmarks.paper.pairs_summary import MARGIN
from benchmarks.paper.report import YARDSTICK_FILE
from benchmarks.paper.tables import NONE, markdown, signed
from benchmarks.trust.against import Gain, gains
from benchmarks.trust.summary import Figures, Record, family_of
from docs.marked import with_part
from model.transfer.abstention import FLOORS

PLUS, DABAND = "daband-plus", "daband"
METHODS = ("nlinucb", "daband-paper", DABAND, PLUS, "nlinucb + ensemble")
DATA = {
    "office-caltech": "Office-Caltech",
    "gdsc": "GDSC",
    "pancreas": "pancreas",
    "warfarin": "warfarin",
    "students": "students",
    "simulated": "simulated",
    "digit": "DIGIT: MNIST → MNIST-M",
    "digit-back": "DIGIT back: MNIST-M → MNIST",
    "rendered-digits": "rendered digits → MNIST",
}
CHANGED = {
    "new arm": "an arm is absent from the source",
    "noise": "noise for a target",
    "permuted": "permuted arms",
    "target 90 %": "one arm best for 90 % of the target",
    "source 90 %": "one arm best for 90 % of the source",
}
SHIFTS = ("target 90 %", "source 90 %")
WORST_SHIFT = 0.05  # a pair that loses more misses the goal under label shift

Pair = Callable[[str], bool]
Yardstick = Mapping[str, float]  # the target reward of full information, by pair


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Write the tables of the page from these runs and from the yardstick that is stored beside it."""
    path.write_text(filled(path.read_text(), records, stored_yardstick(path.with_suffix(""))))


def stored_yardstick(folder: Path) -> Yardstick:
    """What `benchmarks.paper.yardstick` stored."""
    pairs = json.loads((folder / f"{YARDSTICK_FILE}.json").read_text())["pairs"]
    return {name: entry["target"] for name, entry in pairs.items()}


def filled(page: str, records: Sequence[Record], yardstick: Yardstick) -> str:
    """The page with all tables that these runs fill."""
    for name, content in {
        "methods side by side": methods_table(records, yardstick),
        "ahead": ahead_table(records),
        "expected": expected_table(records),
        "abstention": abstention_table(records),
        "shift": shift_table(records),
        "full information": yardstick_table(yardstick),
    }.items():
        page = with_part(page, name, content)
    return page


def is_vector(pair: str) -> bool:
    """Whether the contexts of a task are vectors."""
    return pair not in IMAGES


def is_reported(pair: str) -> bool:
    """Whether a task takes no part in choosing recipes."""
    return part_of(pair) is Part.REPORT


def belongs_to(family: str) -> Pair:
    """Whether a task is one of a data set."""
    return lambda pair: family_of(pair) == family


def unchanged(records: Iterable[Record], method: str) -> list[Record]:
    """A method's runs of the tasks as they are."""
    return [r for r in records if r["variant"] == "plain" and r["method"] == method]


def task_means(records: Iterable[Record], wanted: Pair) -> dict[str, float]:
    """The mean share of the best possible reward over the seeds, by task."""
    shares: dict[str, list[float]] = {}
    for each in records:
        if wanted(each["dataset"]):
            shares.setdefault(each["dataset"], []).append(each["earned"] / each["best"])
    return {name: float(np.mean(values)) for name, values in shares.items()}


def methods_table(records: Sequence[Record], yardstick: Yardstick) -> str:
    """A row for each data set, a column for each method: mean over tasks of the mean over seeds."""

    def row(title: str, wanted: Pair) -> list[str]:
        found = {method: task_means(unchanged(records, method), wanted) for method in METHODS}
        parts = {part_of(name).value for name in found[PLUS]}
        full = [value for name, value in yardstick.items() if wanted(name)]
        values = [*(list(each.values()) for each in found.values()), full]
        return [
            title,
            parts.pop() if len(parts) == 1 else "both",
            str(len(found[PLUS])),
            *(f"{np.mean(each):.3f}" if each else NONE for each in values),
        ]

    rows = [row(title, belongs_to(name)) for name, title in DATA.items()]
    rows.append(row("all vectors", lambda pair: is_vector(pair) and not is_reported(pair)))
    rows.append(row("all vectors", lambda pair: is_vector(pair) and is_reported(pair)))
    titles = ("data", "part", "tasks", *(f"`{method}`" for method in METHODS), "full information")
    return markdown(titles, rows)


def ahead_table(records: Sequence[Record]) -> str:
    """How far the two methods are ahead of the baseline, by data set."""
    found = [each for each in gains(records) if each.variant == "plain"]
    wanted: dict[str, Pair] = {title: belongs_to(name) for name, title in DATA.items()}
    wanted["vectors that chose"] = lambda pair: is_vector(pair) and not is_reported(pair)
    wanted["vectors that only report"] = lambda pair: is_vector(pair) and is_reported(pair)
    wanted["all that only report"] = is_reported
    rows = []
    for title, is_wanted in wanted.items():
        by_method = [_of(found, method, is_wanted) for method in (PLUS, DABAND)]
        rows.append([title, *(cell for some in by_method for cell in _ahead(some))])
    columns = ("ahead", "worst pair", f"bounds below −{MARGIN}")
    titles = [f"`{method}`: {columns[0]}" for method in (PLUS, DABAND)]
    return markdown(("data", titles[0], *columns[1:], titles[1], *columns[1:]), rows)


def shift_table(records: Sequence[Record]) -> str:
    """The same where one arm is best for most of one domain."""
    found = gains(records)
    parts: dict[str, Pair] = {
        "choose": lambda pair: not is_reported(pair),
        "report": is_reported,
        "both": lambda _: True,
    }
    rows = []
    for variant in SHIFTS:
        for part, wanted in parts.items():
            mine = [each for each in found if each.variant == variant]
            some = [_of(mine, method, wanted) for method in (PLUS, DABAND)]
            cells = (cell for each in some for cell in _shifted(each))
            rows.append([CHANGED[variant], part, str(len(some[0])), *cells])
    columns = ("worst pair", f"pairs below −{WORST_SHIFT}")
    titles = [f"`{method}`: ahead" for method in (PLUS, DABAND)]
    return markdown(("shift", "part", "pairs", titles[0], *columns, titles[1], *columns), rows)


def expected_table(records: Sequence[Record]) -> str:
    """What `daband-plus` was expected to earn beside what it earned."""
    judged = [r for r in records if r["judgement"] is not None]
    exclusive = [r for r in judged if r["is_exclusive"]]
    plain = unchanged(exclusive, PLUS)
    groups = {
        f"**all {len(task_means(plain, lambda _: True))} exclusive tasks**": plain,
        "those that chose": [r for r in plain if not is_reported(r["dataset"])],
        "those that only report": [r for r in plain if is_reported(r["dataset"])],
    }
    for name in DATA:
        groups[DATA[name]] = [
            r for r in plain if family_of(r["dataset"]) == name and is_vector(r["dataset"])
        ]
    groups["DIGIT both ways, rendered digits"] = [r for r in plain if not is_vector(r["dataset"])]
    groups["GDSC (graded rewards)"] = [r for r in unchanged(judged, PLUS) if not r["is_exclusive"]]
    for name, title in CHANGED.items():
        groups[title] = [r for r in exclusive if (r["variant"], r["method"]) == (name, PLUS)]
    groups["`daband`, all exclusive tasks"] = unchanged(exclusive, DABAND)
    rows = ([title, *Figures.of(some).cells()] for title, some in groups.items() if some)
    titles = (
        *("", "runs", "earned", "expected", "mean absolute error", "Spearman", "bound holds"),
        *("bound below the truth", "AUC of the confidence", "AUC of the margin"),
    )
    return markdown(titles, rows)


def abstention_table(records: Sequence[Record]) -> str:
    """What decisions above each floor were expected to earn and what they earned, vectors alone."""
    runs = [r for r in unchanged(records, PLUS) if r["is_exclusive"] and is_vector(r["dataset"])]
    rows = []
    for floor in FLOORS:
        found = [e for r in runs for e in r["abstention"] if e["confidence_floor"] == floor]
        means = (np.mean([each[name] for each in found]) for name in ("expected", "earned"))
        if found:
            rows.append([f"{floor}", str(len(found)), *(f"{mean:.3f}" for mean in means)])
    return markdown(("confidence floor", "runs", "expected", "earned"), rows)


def yardstick_table(yardstick: Yardstick) -> str:
    """Full information by data set."""
    rows = []
    for family in dict.fromkeys(map(family_of, yardstick)):
        some = {name: value for name, value in yardstick.items() if family_of(name) == family}
        lowest = min(some, key=lambda name: some[name])
        mean = f"{np.mean(list(some.values())):.3f}"
        rows.append([DATA[family], str(len(some)), mean, f"{some[lowest]:.3f} ({lowest})"])
    return markdown(("data", "pairs", "mean", "lowest"), rows)


def _of(found: Iterable[Gain], method: str, wanted: Pair) -> list[Gain]:
    return [each for each in found if each.method == method and wanted(each.pair)]


def _ahead(some: Sequence[Gain]) -> Iterator[str]:
    bounds = [each.bound for each in some if each.bound is not None]
    yield from _mean_and_worst(some)
    yield f"{sum(bound < -MARGIN for bound in bounds)} of {len(bounds)}"


def _shifted(some: Sequence[Gain]) -> Iterator[str]:
    yield from _mean_and_worst(some)
    yield str(sum(each.mean < -WORST_SHIFT for each in some))


def _mean_and_worst(some: Sequence[Gain]) -> Iterator[str]:
    worst = min(some, key=lambda each: each.mean)
    yield signed(float(np.mean([each.mean for each in some])))
    yield f"{signed(worst.mean)} ({worst.pair})" if len(some) > 1 else signed(worst.mean)
