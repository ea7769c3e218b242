"""Serving installs what it imports, and nothing that only developers need."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = PROJECT["requires-python"].removeprefix(">=") + ".0"
OURS = {"service", "model", "daband_client", "benchmarks", "migrations"}
# Loaded only when asked for: traces by their setting, the kernel where torch has CUDA and brings triton,
# single cells and Ray with their extras.
OPTIONAL = {"opentelemetry", "triton", "h5py", "ray"}
BROUGHT = {"starlette": "fastapi", "markupsafe": "jinja2", "cycler": "matplotlib"}
OF_MAKE = ("MAKE", "MFLAGS", "ARGS")
SERVED = ("service", "model", "client/daband_client", "migrations", "benchmarks/demo.py")


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=;! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


BASE = {name_of(each) for each in PROJECT["dependencies"]}


def sources(place: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("place", SERVED)
def test_what_serving_imports_is_a_dependency(place: str):
    found = {name for path in sources(place) for name in imported(path)}
    foreign = found - OURS - OPTIONAL - set(sys.stdlib_module_names)
    projects = packages_distributions()
    wanted = {BROUGHT.get(name) or name_of(projects[name][0]) for name in foreign}
    assert wanted <= BASE


def test_serving_installs_nothing_of_developers():
    developing = {name_of(each) for each in PROJECT["optional-dependencies"]["dev"]}
    assert not BASE & developing
    assert not BASE & {"scipy", "pandas", "scikit-learn", "triton"}


def pins() -> dict[str, str]:
    """The versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def installed() -> Iterator[Distribution]:
    """The pins that are installed here: some are for other platforms or Pythons."""
    for name, version in pins().items():
        with suppress(PackageNotFoundError):
            found = distribution(name)
            here = found.version.partition("+")[0]
            assert here == version, f"{name} {here} is installed, not that of constraints.txt"
            yield found


def test_every_pin_installs_on_the_oldest_python():
    wanted = {each.name: each.metadata["Requires-Python"] or "" for each in installed()}
    assert len(wanted) > 100
    assert {name: each for name, each in wanted.items() if OLDEST not in SpecifierSet(each)} == {}


@pytest.mark.parametrize("python", [OLDEST, "3.12.0", "3.13.0"])
def test_what_pins_need_is_pinned(python: str):
    minor = python.rpartition(".")[0]
    there = {"python_full_version": python, "python_version": minor, "extra": ""}
    needs = {
        each.name
        for found in installed()
        for each in map(Requirement, found.requires or ())
        if each.marker is None or each.marker.evaluate(there)
    }
    assert {each for each in needs if canonicalize_name(each) not in pins()} == set()


def dry_run(target: str, folder: Path) -> str:
    """What `make` would run; `make test ARGS=…` itself hands its options to every `make` below it."""
    command = ["make", "--dry-run", "--no-print-directory", target, f"VENV={folder}"]
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith(OF_MAKE)}
    done = subprocess.run(
        command, cwd=ROOT, env=inherited, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("target", "wanted"),
    [("serve", "--editable ."), ("demo", "--editable ."), ("check", "--editable '.[dev]'")],
)
def test_a_target_installs_its_part(target: str, wanted: str, tmp_path: Path):
    printed = dry_run(target, tmp_path / "venv")
    (install,) = [line for line in printed.splitlines() if " pip install " in line]
    assert install.endswith(f" {wanted}")
    assert "--constraint constraints.txt" in install
    assert "--quiet" not in install


def test_an_installation_of_developers_serves(tmp_path: Path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    for path in (python, tmp_path / ".installed"):
        path.touch()
    assert dry_run("serve", tmp_path).strip() == f"{tmp_path}/bin/daband serve"
