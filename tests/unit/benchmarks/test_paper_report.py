"""The report is rendered from finished runs, and the committed page is that of its figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle

from benchmarks.datasets.registry import PAIRS
from benchmarks.paper.methods import BY_NAME, PAIR_METHODS, PRINTED, SCRATCH
from benchmarks.paper.plots import gains_figure
from benchmarks.paper.report import filled, write_report
from tests.unit.benchmarks.test_paper_summary import curve, pair_runs, record

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "results.md"
PNG = b"\x89PNG\r\n"


def synthetic_runs() -> list[dict[str, Any]]:
    """Every method with three seeds, and every pair."""
    runs = []
    for number, name in enumerate(each for each in BY_NAME if each != PRINTED.name):
        for seed in range(3):
            target = min(0.3 + 0.05 * number + 0.02 * seed, 1.0)
            slope = 1.2 - 0.07 * number if name != SCRATCH.name else 2.5
            regret = curve(*(slope * step**0.8 for step in range(1, 40)))
            per_class = [target] * 10
            runs.append(record(name, seed, target, target_per_class=per_class, continued=regret))
    for number, pair in enumerate(PAIRS):
        runs += pair_runs(pair, 0.5, 0.5 + 0.005 * (number - 8), 0.52 + 0.004 * number)
    return runs


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "results"
    write_report(synthetic_runs(), ["digit"], pairs=True, out=folder)
    return folder


def test_the_figures_are_written_in_the_agreed_form(out):
    found = json.loads((out / "digit.json").read_text())
    assert {"zero_shot", "ablation", "continued"} <= set(found)
    for part in ("zero_shot", "ablation", "continued"):
        assert all({"mean", "std", "seeds", "paper"} <= set(e) for e in found[part].values())
    assert len(json.loads((out / "pairs.json").read_text())["pairs"]) == len(PAIRS)


def test_the_plots_are_drawn(out):
    names = {path.name for path in out.glob("*.png")}
    assert names == {
        "digit-zero-shot.png",
        "digit-ablation.png",
        "digit-continued.png",
        "pairs.png",
    }
    assert all((out / name).read_bytes().startswith(PNG) for name in names)


def test_the_tables_stand_beside_the_papers_figures(out):
    page = out.with_suffix(".md").read_text()
    assert "| `daband` | 3 | 0.520 ± 0.020 | 0.500 | 0.6002 ± 0.02 |" in page
    assert "| w/o R&P&D | 3 | 0.670 ± 0.020 | 0.650 | 0.3816 ± 0.04 |" in page
    assert "| `nlinucb from scratch` | 3 | 390 |" in page
    assert "results/digit-continued.png" in page
    assert all(f"| {pair} |" in page for pair in PAIRS)
    assert "−0.040 (office-caltech:amazon-caltech)" in page


def test_the_page_keeps_its_text_and_is_written_alike_twice(tmp_path):
    out, page = tmp_path / "results", tmp_path / "results.md"
    page.write_text("# Mine\n\nBefore.\n\n<!-- digit -->\nold\n<!-- end -->\n\nAfter.\n")
    write_report(synthetic_runs(), ["digit"], pairs=True, out=out)
    text = page.read_text()
    assert text.startswith("# Mine\n\nBefore.\n\n<!-- digit -->\nRuns on abacus")
    assert "\nold\n" not in text
    assert "\n\nAfter.\n" in text
    assert filled(text, out) == text


def test_what_was_not_run_leaves_no_heading(tmp_path):
    run = record("daband", 0, 0.7, target_per_class=[0.7] * 10)
    write_report([run], ["digit"], pairs=True, out=tmp_path / "results")
    text = (tmp_path / "results.md").read_text()
    assert "zero-shot" in text
    assert "continued training" not in text
    assert "Every pair" not in text
    assert "<!-- pairs -->\n<!-- end -->" in text


def test_every_method_of_the_pairs_is_a_method():
    assert set(PAIR_METHODS) <= set(BY_NAME)


def test_the_committed_page_is_that_of_the_committed_figures():
    text = PAGE.read_text()
    assert filled(text, ROOT / "docs" / "results") == text, "run `make paper ARGS=--report-only`"
    shown = {part.split(")")[0] for part in text.split("](")[1:] if ".png)" in part}
    assert all((PAGE.parent / name).is_file() for name in shown)


def test_gains_are_drawn_of_the_methods_that_ran():
    pair: dict[str, Any] = {"differences": {"daband": 0.1}}
    both: dict[str, Any] = {"differences": {"daband": 0.1, "daband-plus": -0.1}}
    for pairs, names in (
        ({"a": pair}, ["daband"]),
        ({"a": pair, "b": both}, ["daband", "daband-plus"]),
    ):
        figure = gains_figure(pairs)
        (axes,), (legend,) = figure.axes, figure.legends
        assert [text.get_text() for text in legend.get_texts()] == names
        widths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        assert widths == ([0.1] if len(names) == 1 else [0.1, 0.1, 0.0, -0.1])


@pytest.mark.parametrize(("seeds", "dataset"), [(1, "simulated"), (1, "digit"), (2, "digit")])
def test_one_seed_is_a_smoke_test_without_a_spread(tmp_path: Path, seeds: int, dataset: str):
    regret = curve(*(1.2 * step for step in range(1, 40)))
    runs = [
        record(name, seed, 0.5, dataset=dataset, target_per_class=[0.5] * 10, continued=regret)
        for name in ("nlinucb", "daband", SCRATCH.name)
        for seed in range(seeds)
    ]
    write_report(runs, [dataset], pairs=False, out=tmp_path / "results")
    page = (tmp_path / "results.md").read_text()
    ours = [line for line in page.splitlines() if line.startswith("| `daband` |")]
    assert ours
    assert ("**A smoke test: one seed" in page) == (seeds == 1)
    assert any("0.500 ± 0.000" in line for line in ours) == (seeds > 1)
    assert any("46.8 ± 0.0" in line for line in ours) == (seeds > 1)  # 39 · 1.2
    assert ("lowest" in page) == (dataset == "digit")
