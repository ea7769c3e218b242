"""`make release-check` with the packages that are installed here: nothing is downloaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lending import lend_packages
from tests.support.processes.service import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheels_work_alone(tmp_path: Path):
    lent = lend_packages(tmp_path / "lent")
    command = [sys.executable, "-m", "release.check", "--folder", str(tmp_path / "release")]
    done = subprocess.run([*command, "--lent", str(lent)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in (
        "built   daband-",
        "checked by twine",
        "migrate",
        "demo",
        "report.html",
        "arms.csv",
    ):
        assert word in done.stdout
