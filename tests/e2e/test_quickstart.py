"""docs/quickstart.md does what it says: its blocks are run in order against a fresh service."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.processes.servers import install_package
from tests.support.processes.service import ROOT, ServiceProcess

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "quickstart.md").read_text()


def need_curl() -> None:
    if shutil.which("curl") is None:
        install_package("curl")
    assert shutil.which("curl"), "there is no curl: install the package curl"


def run(kind: str, block: str, url: str, folder: Path) -> str:
    """A block as a reader would run it, but for where the service is."""
    text = block.replace("http://localhost:8000", url).replace("localhost:8000", url)
    command = ["sh", "-eu", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(300)
def test_the_quickstart_works(tmp_path: Path):
    need_curl()
    blocks = BLOCK.findall(PAGE)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "sh", "python", "sh"]
    with ServiceProcess(tmp_path) as service:
        printed = [run(kind, block, service.url, tmp_path) for kind, block in blocks]
        state = httpx.get(f"{service.url}/experiments/doses/state").json()
    assert json.loads(printed[1])["source"]["arm"] in ("low", "mid", "high")
    assert '"status":"created"' in printed[2].replace(" ", "")
    assert '"decisions":' in printed[4]
    assert state["counts"]["decisions"] >= 2


def test_what_starts_it_is_a_target_of_the_makefile():
    assert "\n```\nmake serve\n```\n" in PAGE
    assert "\nserve: " in (ROOT / "Makefile").read_text()
