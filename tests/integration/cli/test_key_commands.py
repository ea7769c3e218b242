"""`daband keys`, on a database of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.auth.keys import digest, parsed
from service.cli.main import app
from tests.support.waiting import PATIENT_ENVIRONMENT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def keys(folder: Path, *arguments: str, **settings: str) -> Result:
    given = PATIENT_ENVIRONMENT | settings
    environment = {f"DABAND_{name}": value for name, value in given.items()}
    command = ["keys", *arguments, "--data-dir", str(folder)]
    return CliRunner().invoke(app, command, env=environment)


def made(folder: Path, *arguments: str, **settings: str) -> tuple[str, str]:
    """Id and secret of a new key."""
    done = keys(folder, "create", "--scope", "select", *arguments, **settings)
    assert done.exit_code == 0, done.output
    found = parsed(done.stdout.strip())
    assert found is not None
    return found


def listed(folder: Path, what: str = "list") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(keys(folder, what, "--json").stdout)
    return found


def test_a_key_is_printed_once_and_kept_as_a_hash(folder: Path):
    key_id, secret = made(folder, "--label", "robot")
    for command in (("list",), ("list", "--json"), ("history",), ("history", "--json")):
        shown = keys(folder, *command).output
        assert key_id in shown
        assert secret not in shown
        assert digest(secret) not in shown
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    assert secret.encode() not in stored
    assert digest(secret).encode() in stored


def test_a_key_is_what_was_asked_for(folder: Path):
    options = ["--scope", "admin", "--tenant", "acme", "--experiment", "b", "--experiment", "a"]
    limits = ["--requests-per-second", "2.5", "--burst", "7", "--expires-in", "90d"]
    key_id, _ = made(folder, *options, *limits)
    (found,) = listed(folder)
    assert (found["key_id"], found["tenant"]) == (key_id, "acme")
    assert (found["scopes"], found["experiments"]) == (["admin", "select"], ["a", "b"])
    assert (found["requests_per_second"], found["burst"]) == (2.5, 7)
    assert found["expires_at"] > found["created_at"]


def test_a_limit_left_out_is_that_of_the_settings(folder: Path):
    made(folder, KEY_REQUESTS_PER_SECOND="12", KEY_BURST="34")
    made(folder, "--requests-per-second", "0")
    limits = [(each["requests_per_second"], each["burst"]) for each in listed(folder)]
    assert limits == [(12, 34), (0, 2000)]


def test_a_rotation_prints_another_secret_for_the_same_key(folder: Path):
    key_id, secret = made(folder)
    for overlap, count in (("1h", 2), ("0s", 1)):
        rotated = parsed(keys(folder, "rotate", key_id, "--overlap", overlap).stdout.strip())
        assert rotated is not None
        assert (rotated[0], rotated[1] == secret) == (key_id, False)
        assert [each["secrets"] for each in listed(folder)] == [count]


def test_every_change_records_its_author(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "alice")
    key_id, _ = made(folder)
    keys(folder, "rotate", key_id)
    monkeypatch.setenv("LOGNAME", "bob")
    keys(folder, "revoke", key_id)
    received = [(each["key_id"], each["what"], each["by"]) for each in listed(folder, "history")]
    acts = (("created", "alice"), ("rotated", "alice"), ("revoked", "bob"))
    assert received == [(key_id, *act) for act in acts]
    assert listed(folder)[0]["revoked_at"] is not None


def test_a_revoked_key_is_not_rotated(folder: Path):
    key_id, _ = made(folder)
    keys(folder, "revoke", key_id)
    refused = keys(folder, "rotate", key_id)
    assert (refused.exit_code, "create another one" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create"], "--scope"),
        (["create", "--scope", "root"], "root"),
        (["create", "--scope", "select", "--tenant", "a/b"], "--tenant has"),
        (
            ["create", "--scope", "select", "--experiment", "a/b"],
            "--experiment is not a valid name",
        ),
        (["create", "--scope", "select", "--expires-in", "soon"], "such as 24h"),
        (["create", "--scope", "select", "--label", "x" * 256], "--label is too long"),
        (["rotate", "nobody", "--overlap", "-1h"], "such as 24h"),
        (["rotate", "nobody"], "There is no key with this id"),
        (["revoke", "nobody"], "There is no key with this id"),
    ],
)
def test_impossible_keys_are_refused_in_one_line(folder: Path, arguments: list[str], message: str):
    refused = keys(folder, *arguments)
    assert refused.exit_code == 2, refused.output
    assert message in refused.output
    assert listed(folder) == []
