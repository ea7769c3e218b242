"""client-js: its types are generated from docs/openapi.json, tsc accepts it, Node runs it against a service."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.auth.keys import Scope
from tests.support.processes.service import ROOT, ServiceProcess

SOURCES = ("package.json", "package-lock.json", "tsconfig.json", ".npmrc", "src", "test")


def npm(folder: Path, *words: str, **variables: str) -> str:
    done = subprocess.run(
        ["npm", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package beside a copy of the description, with its dependencies."""
    root = tmp_path_factory.mktemp("client-js")
    folder = root / "client-js"
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / "client-js" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "openapi.json", root / "docs")
    npm(folder, "ci", "--no-audit", "--no-fund")
    return folder


@pytest.mark.slow
def test_the_types_are_those_of_the_description(package: Path):
    npm(package, "run", "types")
    made, kept = (each / "src" / "schema.d.ts" for each in (package, ROOT / "client-js"))
    assert made.read_text() == kept.read_text(), "run `make client-js`"


@pytest.mark.slow
def test_node_plays_rounds_against_a_service(package: Path, tmp_path: Path):
    key = first_key(tmp_path / "data")
    with ServiceProcess(tmp_path, AUTH="required") as service:
        printed = npm(package, "test", DABAND_URL=service.url, DABAND_API_KEY=key)
    assert "# pass 5" in printed
    assert "# fail 0" in printed


def first_key(folder: Path) -> str:
    """The first key of a new database."""
    scopes = [word for each in Scope for word in ("--scope", each)]
    command = [sys.executable, "-m", "service.cli", "keys", "create", *scopes]
    done = subprocess.run(
        [*command, "--data-dir", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]
