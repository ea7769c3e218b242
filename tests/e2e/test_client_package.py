"""`pip install ./client`: small, alone, and of use against a running service."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from client import write_sync
from tests.support.processes.daband import Server
from tests.support.processes.service import ROOT, clean_environment

CLIENT = ROOT / "client"
MOST_BYTES = 30 << 20
IMPORT = (
    "import sys, daband_client; print(sorted({each.partition('.')[0] for each in sys.modules}))"
)


def output(*command: str | Path, **environment: str) -> str:
    """What a command that must succeed prints, outside of the repository's environment."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=CLIENT,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def passed_tests(python: str | Path, folder: str, url: str) -> str:
    command = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder)
    return output(*command, DABAND_TEST_URL=url)


def test_its_tests_pass_against_a_running_service(service: Server):
    assert "passed" in passed_tests(sys.executable, "tests/server", service.url)


def test_the_sync_client_is_made_of_the_async_one():
    text = write_sync.RESULT.read_text()
    assert write_sync.sync_client() == text, "run `python client/write_sync.py`"


@pytest.mark.slow
def test_it_is_small_and_works_in_a_bare_environment(service: Server, tmp_path: Path):
    """Downloads from the index that pip is set up with; skipped where there is none."""
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    site = Path(
        output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    before = size(site)
    needed = subprocess.run(
        [*map(str, pip), "download", "--no-deps", "--dest", tmp_path, "msgspec"],
        capture_output=True,
    )
    if needed.returncode:
        pytest.skip("pip reaches no package index")
    output(*pip, "install", "--quiet", CLIENT)
    added = size(site) - before
    assert added < MOST_BYTES, f"{added / 1e6:.1f} MB"
    loaded = output(python, "-c", IMPORT)
    assert "'daband_client'" in loaded
    assert not any(f"'{name}'" in loaded for name in ("torch", "numpy", "service", "pydantic"))
    output(*pip, "install", "--quiet", "pytest")
    assert "passed" in passed_tests(python, "tests", service.url)
    sys.stdout.write(f"daband-client takes {added / 1e6:.1f} MB with all that it needs\n")


def size(folder: Path) -> int:
    return sum(os.lstat(path).st_size for path in folder.rglob("*") if path.is_file())
