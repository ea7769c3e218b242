"""Folders and layers of the code are few enough to be read at a glance."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_IN_A_FOLDER = 14
MOST_FLAT = {"service": 8, "model": 7}
MOST_LAYERS = 12


def file_count(folder: Path) -> int:
    return len([each for each in folder.glob("*.py") if each.name != "__init__.py"])


@pytest.mark.parametrize("package", MOST_FLAT)
def test_no_folder_holds_too_many_files(package: str) -> None:
    folders = [each.parent for each in (ROOT / package).rglob("*/__init__.py")]
    assert folders
    crowded = {str(each): file_count(each) for each in folders}
    assert {name: count for name, count in crowded.items() if count > MOST_IN_A_FOLDER} == {}


@pytest.mark.parametrize(("package", "most"), MOST_FLAT.items())
def test_few_files_lie_flat(package: str, most: int) -> None:
    assert 0 < file_count(ROOT / package) <= most


def test_few_layers_hold_every_file() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layered = {
        tuple(each["containers"]): each for each in linter["contracts"] if each["type"] == "layers"
    }
    assert layered.keys() == {("service",), ("model",)}
    for contract in layered.values():
        assert contract["exhaustive"]
        assert len(contract["layers"]) <= MOST_LAYERS
