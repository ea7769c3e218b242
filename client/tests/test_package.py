"""The package is what the project says it is."""

import tomllib
from pathlib import Path
from typing import Any

import daband_client

CLIENT = Path(__file__).parents[1]


def project(path: Path) -> Any:
    return tomllib.loads(path.read_text())["project"]


def test_client_and_service_take_their_version_from_one_place() -> None:
    for folder in (CLIENT, CLIENT.parent):
        read = tomllib.loads((folder / "pyproject.toml").read_text())
        assert read["project"]["dynamic"] == ["version"]
        path = folder / read["tool"]["hatch"]["version"]["path"]
        assert path.resolve() == CLIENT / "daband_client" / "settings.py"
        assert f'__version__ = "{daband_client.__version__}"' in path.read_text()


def test_what_it_needs_is_what_the_service_asks_for() -> None:
    needed = project(CLIENT / "pyproject.toml")["dependencies"]
    assert [each.partition(">")[0] for each in needed] == ["httpx", "msgspec"]
    assert set(needed) <= set(project(CLIENT.parent / "pyproject.toml")["dependencies"])
