"""Writes the report: figures as JSON, tables into a page, plots as PNG.

The page is a function of the JSON files, so that a test can compare the two.
"""

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.paper.pairs_summary import pairs_summary
from benchmarks.paper.runs import Record
from benchmarks.paper.summary import Summary, table_summary
from benchmarks.paper.tables import file_name, pairs_part, table_parts
from docs.marked import with_part

PAIRS_FILE = "pairs"
YARDSTICK_FILE = "yardstick"  # written by benchmarks/paper/yardstick.py, without a table of its own
_START = "# Results\n"


def write_report(
    records: Iterable[Record], datasets: Iterable[str], pairs: bool, out: Path
) -> None:
    """`out`/NAME.json and PNGs of each data set and of the pairs; tables in the page `out`.md."""
    found = list(records)
    out.mkdir(parents=True, exist_ok=True)
    for dataset in datasets:
        _write_json(out / f"{file_name(dataset)}.json", table_summary(found, dataset))
    if pairs:
        _write_json(out / f"{PAIRS_FILE}.json", pairs_summary(found))
    page = out.with_suffix(".md")
    text = page.read_text() if page.exists() else _START
    page.write_text(filled(text, out))
    if importlib.util.find_spec("matplotlib") is None:
        print("No plots: matplotlib is not installed. `--report-only` draws them elsewhere.")
        return
    _draw(out)


def filled(page: str, folder: Path) -> str:
    """The page with the tables of all JSON files in a folder; new ones go to its end."""
    for name, summary in _summaries(folder):
        make = pairs_part if name == PAIRS_FILE else table_parts
        if f"<!-- {name} -->" not in page:
            page += f"\n<!-- {name} -->\n<!-- end -->\n"
        page = with_part(page, name, make(summary, folder.name))
    return page


def _summaries(folder: Path) -> list[tuple[str, Summary]]:
    return [
        (path.stem, json.loads(path.read_text()))
        for path in sorted(folder.glob("*.json"))
        if path.stem != YARDSTICK_FILE
    ]


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _draw(out: Path) -> None:
    # Not to be had on a machine that only computes.
    from benchmarks.paper.plots import gains_figure, table_figures

    for name, summary in _summaries(out):
        if name == PAIRS_FILE:
            if summary["pairs"]:
                gains_figure(summary["pairs"]).savefig(out / f"{name}.png", dpi=150)
            continue
        for ending, figure in table_figures(summary).items():
            figure.savefig(out / f"{name}-{ending}.png", dpi=150)
