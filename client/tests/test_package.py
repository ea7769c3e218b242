"""The package is what the project says it is."""

import tomllib
from pathlib import Path
from typing import Any

import daband_client

CLIENT = Path(__file__).parents[1]


def project(path: Path) -> Any:
    return tomllib.loads(path.read_text())["project"]


def test_client_and_service_have_one_version() -> None:
    versions = {project(CLIENT.parent / "pyproject.toml")["version"], daband_client.__version__}
    assert versions == {project(CLIENT / "pyproject.toml")["version"]}


def test_what_it_needs_is_what_the_service_asks_for() -> None:
    needed = project(CLIENT / "pyproject.toml")["dependencies"]
    assert [each.partition(">")[0] for each in needed] == ["httpx", "msgspec"]
    assert set(needed) <= set(project(CLIENT.parent / "pyproject.toml")["dependencies"])
