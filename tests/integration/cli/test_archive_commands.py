"""`daband log archive`, and the commands that read a log afterwards, as an operator uses them."""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from benchmarks.long_log import linear_spec, write_log, write_snapshot
from service.cli import database
from service.storage.archive import returning
from service.storage.archive.segment_file import read_segment
from service.storage.backup.backup import backup
from service.storage.backup.format import Contents
from service.storage.database import Database
from service.storage.experiments import Experiments
from tests.integration.cli.test_cli import daband
from tests.support.storage import PATIENT, migrated, sqlite_url

EVENTS = 1_200


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """The data folder of an experiment `long`, whose rounds are a day old and folded."""
    read_segment.cache_clear()
    url = sqlite_url(tmp_path / "data" / "daband.db")
    await migrated(url)
    opened = await Database.open(url, PATIENT)
    spec = linear_spec("long", arms=3, size=4, episode_length=10**9)
    await write_snapshot(opened, await write_log(opened, spec, EVENTS))
    await opened.close()
    return tmp_path / "data"


def passed(*arguments: str, folder: Path) -> Result:
    outcome = daband(*arguments, "--data-dir", str(folder))
    assert outcome.exit_code == 0, outcome.output
    return outcome


def exported(folder: Path, name: str) -> bytes:
    file = folder.parent / f"{name}.jsonl"
    passed("log", "export", "long", str(file), folder=folder)
    return file.read_bytes()


def test_a_log_is_replayed_and_exported_the_same_after_it_was_archived(folder: Path):
    before = exported(folder, "before")
    replayed = passed("replay", "long", folder=folder).output
    done = passed("log", "archive", "--older-than", "1h", "--keep", "100", folder=folder)
    assert f"long: {EVENTS - 100} events moved into 1 files" in done.output
    for named in (["long"], []):
        checked = passed("log", "check", *named, folder=folder).output
        assert f"1 files with {EVENTS - 100} events are whole" in checked
    assert exported(folder, "after") == before
    assert passed("replay", "long", folder=folder).output == replayed
    again = passed("log", "archive", "long", "--older-than", "1h", "--keep", "100", folder=folder)
    assert "long: 0 events" in again.output


def test_the_restore_drill(folder: Path, tmp_path: Path):
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)
    told = passed("backup", str(tmp_path / "backup"), folder=folder).output
    assert "1 files of archived rounds are not in it" in told
    other = tmp_path / "other"
    passed("migrate", folder=other)
    passed("restore", str(tmp_path / "backup"), folder=other)
    missing = daband("log", "check", "long", "--data-dir", str(other))
    assert missing.exit_code == 2
    assert "cannot be read" in missing.output
    shutil.copytree(folder / "archive", other / "archive")
    assert "equal" in passed("replay", "long", folder=other).output


def test_a_backup_takes_the_archived_files_along(folder: Path, tmp_path: Path):
    copies = ("--archive", str(tmp_path / "copies"))
    passed("log", "archive", "long", "--older-than", "1h", "--keep", "600", folder=folder)
    passed("backup", str(tmp_path / "first"), *copies, folder=folder)
    (first,) = (tmp_path / "copies").rglob("*.parquet")
    made = first.stat().st_mtime_ns
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)
    passed("backup", str(tmp_path / "second"), *copies, folder=folder)
    assert len(list((tmp_path / "copies").rglob("*.parquet"))) == 2
    assert first.stat().st_mtime_ns == made  # only what was missing is copied
    other = tmp_path / "other"
    passed("migrate", folder=other)
    told = passed("restore", str(tmp_path / "second"), *copies, folder=other).output
    assert "not in it" not in told
    assert "2 files" in passed("log", "check", folder=other).output
    assert "equal" in passed("replay", "long", folder=other).output


def test_a_backup_without_a_file_is_refused_with_its_name(folder: Path, tmp_path: Path):
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)
    (file,) = (folder / "archive").rglob("*.parquet")
    file.unlink()
    copies = ("--archive", str(tmp_path / "copies"), "--data-dir", str(folder))
    outcome = daband("backup", str(tmp_path / "backup"), *copies)
    assert outcome.exit_code == 2
    assert file.name in outcome.output


def test_a_backup_whose_files_were_removed_meanwhile_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)

    async def then_moved_back(opened: Database, file: Path) -> Contents:
        done = await backup(opened, file)
        experiment = await Experiments(opened).get("long")
        await returning.Returning(opened, wait=partial(asyncio.sleep, 0)).run(experiment)
        return done

    monkeypatch.setattr(database, "backup", then_moved_back)
    copies = ("--archive", str(tmp_path / "copies"), "--data-dir", str(folder))
    outcome = daband("backup", str(tmp_path / "backup"), *copies)
    assert outcome.exit_code == 2
    assert "cannot be read" in outcome.output


def test_archived_rounds_are_moved_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = exported(folder, "before")
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)
    monkeypatch.setattr(returning, "READERS_SECONDS", 0.0)
    told = passed("log", "unarchive", "long", folder=folder).output
    assert f"long: {EVENTS - 1} events moved back from 1 files" in told
    assert not list((folder / "archive").rglob("*.parquet"))
    assert exported(folder, "after") == before
    assert "0 files" in passed("log", "check", folder=folder).output


POLICY = """
[default]
older_than = "1h"
[experiments.long]
older_than = "1h"
keep = 500
[experiments.gone]
older_than = "never"
"""


def test_a_policy_says_what_stays_of_each_experiment(folder: Path, tmp_path: Path):
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    told = passed("log", "archive", "--policy", str(file), folder=folder).output
    assert f"long: {EVENTS - 500} events moved" in told
    file.write_text('[default]\nolder_than = "1h"\n[experiments.long]\nolder_than = "never"\n')
    assert "long" not in passed("log", "archive", "--policy", str(file), folder=folder).output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[default]\nolder_than = "soon"', "older_than"),
        ('[default]\nolder_then = "1d"', "older_then"),
        ("[default]\nkeep = -1", "keep"),
        ('[experiments.long]\nolder_than = "59m"', "1h"),
        ("[default", "policy.toml"),
    ],
)
def test_a_policy_that_is_not_understood_moves_nothing(
    folder: Path, tmp_path: Path, text: str, reason: str
):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    outcome = daband("log", "archive", "--policy", str(file), "--data-dir", str(folder))
    assert outcome.exit_code == 2
    assert reason in outcome.output
    assert "0 files" in passed("log", "check", folder=folder).output


@pytest.fixture
async def second(folder: Path) -> None:
    """A second experiment in the same database."""
    opened = await Database.open(sqlite_url(folder / "daband.db"), PATIENT)
    spec = linear_spec("second", arms=3, size=4, episode_length=10**9)
    await write_snapshot(opened, await write_log(opened, spec, EVENTS))
    await opened.close()


@pytest.mark.usefixtures("second")
def test_an_experiment_that_cannot_be_archived_does_not_hold_up_the_others(
    folder: Path, tmp_path: Path
):
    old = ("--older-than", "1h", "--data-dir", str(folder))
    assert daband("log", "archive", "long", "--keep", "600", *old).exit_code == 0
    (file,) = (folder / "archive").rglob("*.parquet")
    file.rename(tmp_path / "lost")
    outcome = daband("log", "archive", *old)
    assert outcome.exit_code == 2
    assert "long: The archived file" in outcome.output
    assert f"second: {EVENTS - 1} events moved" in outcome.output


def test_a_flipped_byte_ends_a_replay_with_the_name_of_the_file(folder: Path):
    passed("log", "archive", "long", "--older-than", "1h", folder=folder)
    (file,) = (folder / "archive").rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[1000] ^= 4
    file.write_bytes(content)
    for command in (("replay", "long"), ("log", "check", "long")):
        outcome = daband(*command, "--data-dir", str(folder))
        assert outcome.exit_code == 2
        assert f"{file.name} has changed" in outcome.output


@pytest.fixture
async def server_url(postgres_url: str) -> str:
    """Postgres with an experiment."""
    opened = await Database.open(postgres_url, PATIENT)
    await Experiments(opened).create("long", "{}")
    await opened.close()
    return postgres_url


def test_beside_a_database_server_the_folder_must_be_named(server_url: str, tmp_path: Path):
    given = {"DATABASE_URL": server_url, "DATA_DIR": str(tmp_path)}
    for empty in ({}, {"ARCHIVE_DIR": ""}):
        refused = daband("log", "archive", **given, **empty)
        assert refused.exit_code == 2
        assert "DABAND_ARCHIVE_DIR" in refused.output
    allowed = daband("log", "archive", ARCHIVE_DIR=str(tmp_path / "archive"), **given)
    assert allowed.exit_code == 0, allowed.output


def test_young_rounds_are_not_archived(folder: Path):
    for age in ("59m", "soon"):
        outcome = daband("log", "archive", "--older-than", age, "--data-dir", str(folder))
        assert outcome.exit_code == 2
    assert "long: 0 events" in passed("log", "archive", folder=folder).output
