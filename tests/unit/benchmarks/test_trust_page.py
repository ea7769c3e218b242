"""docs/results.md and the README show what the stored runs say."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trust.goals import goal_figures
from benchmarks.trust.page import filled, stored_yardstick, write_page
from docs import write

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "results.md"
RUNS = ROOT / "docs" / "results" / "trust.jsonl"
HINT = "run `python -m benchmarks.trust --from docs/results/trust.jsonl --page docs/results.md`"


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RUNS.read_text().splitlines()]


def test_the_committed_tables_are_those_of_the_stored_runs(records):
    text = PAGE.read_text()
    assert filled(text, records, stored_yardstick(PAGE.with_suffix(""))) == text, HINT
    assert write.filled(text) == text, "a table has the name of one that `make docs` writes"


def test_every_goal_has_the_figure_of_the_stored_runs(records):
    rows = (line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines())
    shown = {row[0]: row[1] for row in rows if len(row) > 1}
    found = goal_figures(records, stored_yardstick(PAGE.with_suffix("")))
    assert {goal: shown.get(goal) for goal in found} == found


def test_a_run_that_earned_otherwise_changes_the_page(records, tmp_path):
    (tmp_path / "results").mkdir()
    yardstick = (PAGE.with_suffix("") / "yardstick.json").read_text()
    (tmp_path / "results" / "yardstick.json").write_text(yardstick)
    page = tmp_path / "results.md"
    page.write_text("# Mine\n\n<!-- methods side by side -->\nold\n<!-- end -->\n")
    write_page(page, records)
    before = page.read_text()
    row = "| DIGIT: MNIST → MNIST-M | report | 1 | 0.554 | 0.299 | 0.867 | 0.953 | 0.799 | – |"
    assert row in before
    better = [{**each, "earned": 1.0} if each["dataset"] == "digit" else each for each in records]
    write_page(page, better)
    assert row not in page.read_text()
    assert "| 1.000 | 1.000 | 1.000 | 1.000 | 1.000 |" in page.read_text()


def test_the_readme_shows_figures_of_that_table():
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    readme = (ROOT / "README.md").read_text().replace("**", "")
    for named, part in (
        ("DIGIT: MNIST", "report"),
        ("all vectors", "report"),
        ("all vectors", "choose"),
    ):
        (full,) = [row for row in rows if row[0].startswith(named) and row[1:2] == [part]][:1]
        shown = " | ".join((*full[2:7], full[8]))
        assert f" | {shown} |" in readme
