"""Commands load what they work with, and no more: counted in modules, not in seconds."""

import json
import subprocess
import sys

import pytest
import typer

from service.cli.main import app
from tests.support.processes.servers import free_port
from tests.support.processes.service import ROOT, clean_environment

HEAVY = {"torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "fastapi", "starlette"}
# Not pydantic: typer loads it by itself.
SERVER = {"sqlalchemy", "alembic", "prometheus_client", "uvicorn", "redis"}
RUN = """
import json, sys
sys.argv = ["daband", *sys.argv[1:]]
from service.cli.main import main
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(*arguments: str) -> tuple[int, set[str]]:
    """The exit code of a command, and the packages that it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    code, names = json.loads(done.stdout.splitlines()[-1])
    return code or 0, set(names)


@pytest.mark.parametrize("words", [[], ["experiment"], ["serve"], ["keys", "create"], ["evaluate"]])
def test_help_loads_nothing_but_the_command_line(words: list[str]):
    code, names = loaded(*words, "--help")
    assert code == 0
    assert names & (HEAVY | SERVER | {"httpx", "rich", "msgspec"}) == set()
    assert "typer" in names


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["experiment", "list"], set()),
        (["experiment", "snapshots", "doses"], set()),
        (["report", "doses"], set()),
        (["export", "doses"], set()),
        (["demo", "--rounds", "1"], {"numpy", "matplotlib"}),
    ],
)
def test_commands_that_ask_a_service_load_the_client_and_no_learning(
    words: list[str], needed: set[str]
):
    code, names = loaded(*words, "--url", f"http://127.0.0.1:{free_port()}")
    assert code == 2
    assert "httpx" in names
    assert names & (HEAVY | SERVER) == needed


def test_every_command_that_calls_a_service_has_the_same_options():
    group = typer.main.get_command(app)
    remote = [each for name, each in group.commands["experiment"].commands.items()]  # type: ignore[attr-defined]
    remote += [group.commands[name] for name in ("demo", "upload", "report", "export")]  # type: ignore[attr-defined]
    for command in remote:
        options = {option for each in command.params for option in each.opts}
        assert {"--url", "--key"} <= options, command.name
