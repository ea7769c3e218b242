"""README.md and docs/quickstart.md do what they say: their blocks are run in order against a service."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.daband import Server, serving
from tests.support.processes.packages import program
from tests.support.processes.service import ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
README, QUICKSTART = ROOT / "README.md", ROOT / "docs" / "quickstart.md"
ARMS = ("low", "mid", "high")


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


def run(kind: str, block: str, url: str, folder: Path) -> str:
    """A block as a reader would run it, but for where the service and the command are."""
    text = block.replace("http://localhost:8000", url).replace("localhost:8000", url)
    text = text.replace(".venv/bin/daband", f"{sys.executable} -m service.cli")
    command = ["sh", "-eu", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
    places = {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "DABAND_URL": url}
    environment = os.environ | places
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for both pages, as for a reader of both."""
    program("curl")
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.mark.timeout(900)
def test_the_quickstart_ends_in_an_answer_beside_a_baseline(service: Server, tmp_path: Path):
    found = [each for each in blocks(QUICKSTART) if each[0]]
    assert [kind for kind, _ in found] == ["sh", "sh", "sh", "python", "sh", "python", "sh"]
    printed = [run(kind, block, service.url, tmp_path) for kind, block in found]
    assert json.loads(printed[1])["source"]["arm"] in ARMS
    assert '"status":"created"' in printed[2].replace(" ", "")
    assert printed[3].count("of the arms were best") == 4
    decisions = json.loads(printed[4])["decisions"]
    assert [each["arm"] for each in decisions] == ["mid", "low"]
    assert not any(each["abstained"] for each in decisions)
    policy, *others = (float(each) for each in re.findall(r"earns (\d\.\d+)", printed[5]))
    assert len(others) == len(ARMS)
    assert policy > max(others) + 0.3
    assert "<svg" in (tmp_path / "doses-transfer.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_ends_in_an_answer_beside_a_baseline(service: Server, tmp_path: Path):
    found = [each for each in blocks(README) if each[0]]
    assert [kind for kind, _ in found] == ["sh", "sh", "sh"]
    calls, demo, files = [run(kind, block, service.url, tmp_path) for kind, block in found]
    assert '"status":"created"' in calls.replace(" ", "")
    assert "The first context gets arm-" in demo
    policy, *others = (float(each) for each in re.findall(r"│ +(\d\.\d{3}) │$", demo, re.MULTILINE))
    assert len(others) == 2
    # By how much depends on which encoder served which round, and so on the machine.
    assert policy > max(others)
    assert (tmp_path / "build" / "serve-demo.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(files.splitlines()[-1])["arm"] in ARMS
    assert "<svg" in (tmp_path / "first-transfer.html").read_text()


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=lambda page: page.name)
def test_what_is_not_run_here_is_a_target_of_the_makefile(page: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    plain = [
        line.split("#")[0].split()
        for kind, text in blocks(page)
        if not kind
        for line in text.splitlines()
    ]
    assert plain
    assert all(words[0] == "make" and words[1] in targets for words in plain), plain
