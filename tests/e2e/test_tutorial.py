"""docs/tutorial.md does what it says: its blocks are run in order, and its tables are those of the script."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tutorial import simulate
from tests.support.processes.service import ROOT

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
TABLES = ("mice.csv", "humans.csv", "truth.csv")


def run(kind: str, block: str, folder: Path) -> str:
    """A block as a reader would run it, but for where the command is."""
    text = block.replace(".venv/bin/daband", f"{sys.executable} -m service.cli")
    command = ["sh", "-eu", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_works(tmp_path: Path):
    shutil.copytree(ROOT / "docs" / "tutorial", tmp_path / "docs" / "tutorial")
    blocks = BLOCK.findall(PAGE)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "sh", "python", "sh"]
    printed = [run(kind, block, tmp_path) for kind, block in blocks]
    assert "m001," in printed[0]
    for word in ("learned   600 rewards", "decided   200 rows", "verdict   ", "expected  "):
        assert word in printed[1]
    assert printed[2].startswith(
        "id,arm,expected_reward,mean,bonus,transfer_confidence,abstained,p(high)"
    )
    assert best_arms(printed[3]) >= 85, printed[3]
    earned, expected = (
        float(re.findall(rf"{word}:? (?:by )?(-?[\d.]+) %", printed[3])[0])
        for word in ("tumours", "expected")
    )
    assert abs(earned - expected) < 10, printed[3]
    assert "<svg" in (tmp_path / "report.html").read_text()


def best_arms(printed: str) -> int:
    found = re.search(r"best arm for (\d+)%", printed)
    assert found is not None, printed
    return int(found[1])


def test_plain_regression_does_as_well_on_the_tables_of_the_tutorial(tmp_path: Path):
    shutil.copytree(ROOT / "docs" / "tutorial", tmp_path / "docs" / "tutorial")
    ((kind, block),) = BLOCK.findall((ROOT / "docs" / "alternatives.md").read_text())
    assert best_arms(run(kind, block, tmp_path)) >= 95


def test_the_tables_are_those_that_the_script_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(simulate, "FOLDER", tmp_path)
    simulate.main()
    for name in TABLES:
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / "tutorial" / name).read_bytes()
