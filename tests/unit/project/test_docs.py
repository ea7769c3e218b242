"""The documentation is true: it names everything there is, in the code's own words."""

import re
from pathlib import Path

import pytest
import typer

from docs import write
from model.config import SYSTEMS
from service.app import create_app
from service.cli.main import app as command_line
from service.settings import Settings

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs" / name for name in ("api.md", "operations.md", "algorithm.md", "client.md")]
API, OPERATIONS, ALGORITHM, _ = (page.read_text() for page in PAGES)
HINT = "run `make docs` (python -m docs.write)"


def commands() -> list[str]:
    group = typer.main.get_command(command_line)
    found = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": None})
        found += [f"daband {name} {each}".strip() for each in inner]
    return found


def actions() -> set[str]:
    sources = (ROOT / "service").rglob("*.py")
    return {
        word
        for source in sources
        for word in re.findall(r'"action": "([^"]*)"', source.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_the_codes_own(page: Path):
    text = page.read_text()
    assert write.filled(text) == text, HINT


def test_the_stored_openapi_description_is_the_apps():
    assert (ROOT / "docs" / "openapi.json").read_text() == write.openapi(), HINT


def test_every_table_is_filled():
    ends = sum(page.read_text().count("<!-- end -->") for page in PAGES)
    assert ends == len(write.PARTS)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_described(command: str):
    assert f"`{command}" in OPERATIONS


def test_every_route_is_described():
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in API


def test_every_action_word_is_described():
    found = actions()
    assert {"request_failed", "bus_failed"} <= found
    for word in found:
        assert re.fullmatch(r"[a-z_]+", word)
        assert f"| `{word}` |" in OPERATIONS


def test_every_system_is_documented():
    assert all(f"`{name}`" in ALGORITHM for name in SYSTEMS)


def test_nothing_is_pickled():
    sources = [*ROOT.glob("model/**/*.py"), *ROOT.glob("service/**/*.py")]
    assert sources
    for path in sources:
        text = path.read_text()
        assert "pickle" not in text, path
        assert "torch.load" not in text, path
        assert "torch.save" not in text, path
