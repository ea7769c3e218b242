"""The command line, without a server where none is needed."""

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.records import uuid7
from tests.support.processes.servers import free_port
from tests.support.waiting import PATIENT_ENVIRONMENT


def daband(*arguments: str, **settings: str) -> Result:
    given = PATIENT_ENVIRONMENT | settings
    environment = {f"DABAND_{name}": value for name, value in given.items()}
    return CliRunner().invoke(app, list(arguments), env=environment)


def test_settings_are_listed_without_secrets():
    shown = daband("settings", DATABASE_URL="postgresql://me:secret@host/db")
    assert shown.exit_code == 0
    assert shown.output.count("DABAND_") > 10
    assert "secret" not in shown.output


def test_a_database_is_migrated_once(tmp_path: Path):
    first, second = (daband("migrate", "--data-dir", str(tmp_path)) for _ in range(2))
    assert "None →" in first.output
    assert "nothing to do" in second.output


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["train"], ["migrate"]])
def test_a_database_of_a_later_version_is_refused_in_a_line(tmp_path: Path, command: list[str]):
    folder = ("--data-dir", str(tmp_path))
    daband("migrate", *folder)
    with sqlite3.connect(tmp_path / "daband.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    outcome = daband(*command, *folder)
    assert outcome.exit_code == 2
    assert "A later version of daband wrote this database" in outcome.output
    assert "9999" in outcome.output
    assert isinstance(outcome.exception, SystemExit)


def test_replaying_an_unknown_experiment_is_an_error(tmp_path: Path):
    outcome = daband("replay", "nobody", "--data-dir", str(tmp_path))
    assert outcome.exit_code == 2
    assert "no experiment of this name" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (["--workers", "2"], {}, "needs Postgres and Redis"),
        ([], {"PRT": "1"}, "did you mean DABAND_PORT"),
        (["--device", "abacus"], {}, "device: "),
        (["--host", "256.0.0.1"], {"AUTH": "dangerously-off"}, "cannot listen on 256.0.0.1"),
        (["--host", "0.0.0.0"], {}, "or listen on 127.0.0.1"),  # noqa: S104
        ([], {"AUTH": "required"}, "serving on 127.0.0.1 needs keys, and there is none"),
        ([], {"AUTH": "required"}, "or leave out DABAND_AUTH=required"),
        (["--host", "::"], {"AUTH": "off"}, "DABAND_AUTH=off is for loopback addresses"),
        ([], {"CORS_ORIGINS": "*"}, "DABAND_CORS_ORIGINS must list origins"),
        (
            [],
            {"DATABASE_URL": "postgresql://nobody:secret@127.0.0.1:1/none", "STARTUP_SECONDS": "0"},
            "database is not ready",
        ),
        ([], {"DATABASE_URL": "mysql://me:secret@host/db"}, "sqlite:///… or postgresql://…"),
    ],
)
def test_a_bad_start_ends_with_one_clear_line(
    tmp_path: Path, arguments: list[str], settings: dict[str, str], message: str
):
    outcome = daband("serve", "--data-dir", str(tmp_path), *arguments, **settings)
    assert outcome.exit_code == 2, outcome.output
    assert message in outcome.output
    assert "secret" not in outcome.output


def test_an_old_schema_is_refused_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch):
    async def outdated(*_: object) -> bool:
        return False

    monkeypatch.setattr("service.app.migrate.is_current", outdated)
    outcome = daband("serve", DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert outcome.exit_code == 2
    assert "daband migrate" in outcome.output


def test_a_service_is_named_by_an_option_or_a_variable():
    url = f"http://127.0.0.1:{free_port()}"
    assert f"no answer from {url}: " in daband("experiment", "list", URL=url).output
    other = daband("experiment", "list", "--url", "localhost:8000", URL=url)
    assert (other.exit_code, "is no address of a service" in other.output) == (2, True)


@pytest.mark.parametrize("command", [["experiment", "list"], ["demo", "--rounds", "1"]])
def test_a_service_that_is_not_there_is_reported(command: list[str]):
    url = f"http://127.0.0.1:{free_port()}"
    outcome = daband(*command, "--url", url)
    assert (outcome.exit_code, f"no answer from {url}: " in outcome.output) == (2, True)


def test_a_configuration_must_be_json():
    outcome = daband("experiment", "create", uuid7(), "--arm", "a", "--shape", "1", "--config", "{")
    assert (outcome.exit_code, "--config must be JSON" in outcome.output) == (2, True)


def test_help_names_every_command():
    shown = daband("--help").output
    for command in ("serve", "train", "migrate", "replay", "settings", "experiment", "demo"):
        assert command in shown


def test_a_backup_is_written_verified_and_restored(tmp_path: Path):
    file, empty = tmp_path / "backup.gz", ("--data-dir", str(tmp_path / "new"))
    written = daband("backup", str(file), "--data-dir", str(tmp_path / "old"))
    assert written.exit_code == 0, written.output
    assert "whole, sha256:" in written.output
    for command in ("backup", "restore"):
        assert daband(command, str(file), "--verify").output == written.output
    assert daband("restore", str(file), *empty).output == written.output


def test_a_damaged_backup_is_an_error(tmp_path: Path):
    file = tmp_path / "backup.gz"
    daband("backup", str(file), "--data-dir", str(tmp_path / "old"))
    file.write_bytes(file.read_bytes()[:-9])
    refused = daband("restore", str(file), "--data-dir", str(tmp_path / "new"))
    assert refused.exit_code == 2
    assert "damaged or truncated" in refused.output
    missing = daband("backup", str(tmp_path / "none.gz"), "--verify")
    assert (missing.exit_code, "cannot be opened" in missing.output) == (2, True)
