"""The other commands, against a real service."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from daband_client import Client, Round
from service.cli.main import app
from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.service import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("keeps_logging")

SMALL = '{"latent_size": 4, "hidden_sizes": [8]}'


def outcome_of(*arguments: str, typed: str = "") -> Result:
    """What became of a command, whose user types this; here, for to start one takes seconds."""
    return CliRunner().invoke(app, list(arguments), input=typed, env={"COLUMNS": "200"})


def daband(*arguments: str) -> str:
    """What a command that must succeed prints."""
    done = outcome_of(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_experiments_are_created_listed_and_shown(service: Server):
    url = ("--url", service.url)
    arms = ("--arm", "low", "--arm", "high", "--shape", "4", "--config", SMALL)
    created = json.loads(daband("experiment", "create", "doses", *arms, *url))
    assert (created["arms"], created["context"]["shape"]) == (["low", "high"], [4])
    assert "doses" in json.loads(daband("experiment", "list", *url))
    shown = json.loads(daband("experiment", "show", "doses", *url))
    assert shown["declared"]["config"] == json.loads(SMALL)
    assert json.loads(SMALL).items() <= shown["config"].items()
    assert shown["state"]["phase"] == "zero_shot"
    assert json.loads(daband("experiment", "config", "doses", *url)) == shown["config"]


def test_experiments_are_paused_archived_resumed_and_deleted(service: Server):
    url = ("--url", service.url)
    arms = ("--arm", "low", "--arm", "high", "--shape", "4", "--config", SMALL)
    daband("experiment", "create", "old", *arms, *url)
    for command, status in (("pause", "paused"), ("archive", "archived"), ("resume", "active")):
        changed = json.loads(daband("experiment", command, "old", "--by", "ann", *url))
        assert changed["status"] == status
    refused = outcome_of("experiment", "delete", "old", "--confirm", "other", *url)
    assert (refused.exit_code, "nothing was deleted" in refused.stderr) == (2, True)
    typed = outcome_of("experiment", "delete", "old", *url, typed="old\n")
    assert typed.exit_code == 0, typed.output
    assert "old" not in json.loads(daband("experiment", "list", *url))
    acts = json.loads(daband("experiment", "history", *url))
    received = [each["what"] for each in acts if each["experiment"] == "old"]
    assert [each for each in received if each != "erased"] == [
        "deleted",
        "active",
        "archived",
        "paused",
    ]


def test_snapshots_are_listed_and_gone_back_to(service: Server):
    url = ("--url", service.url)
    with Client(service.url) as client:
        shared = {"kind": "shared", "shape": [4]}
        client.create_experiment("kept", ["low", "high"], shared, config=json.loads(SMALL))
        selected = client.select("kept", Round([1.0, 0.0, 0.0, 0.0]))
        assert selected.source is not None
        client.reward(selected.source.decision_id, 1)
    wait_until(lambda: json.loads(daband("experiment", "snapshots", "kept", *url)) != [])
    newest, *_ = json.loads(daband("experiment", "snapshots", "kept", *url))
    assert {"version", "offset", "created_at", "size_bytes"} <= set(newest)
    back = json.loads(daband("experiment", "restore", "kept", str(newest["version"]), *url))
    assert back["version"] == newest["version"]


def test_a_person_trains_now_once_there_is_a_reward(service: Server):
    url = ("--url", service.url)
    arms = ("--arm", "low", "--arm", "high", "--shape", "4", "--config", SMALL)
    daband("experiment", "create", "asked", *arms, *url)
    refused = outcome_of("train-now", "asked", *url)
    assert (refused.exit_code, "no reward yet" in refused.stderr) == (2, True)
    with Client(service.url) as client:
        decided = client.select("asked", Round(source=[0.0] * 4))
        assert decided.source is not None
        client.reward(decided.source.decision_id, 1.0)
    asked = json.loads(daband("train-now", "asked", "--by", "ann", "--reason", "new", *url))
    assert (asked["experiment"], asked["status"]) == ("asked", "created")


def test_the_demo_plays_and_draws_its_curves(service: Server, tmp_path: Path):
    plot = tmp_path / "curves" / "demo.png"
    shown = daband("demo", "--rounds", "40", "--plot", str(plot), "--url", service.url)
    for text in ("domain", "expected reward", "for all", "The first context gets arm-", "/report"):
        assert text in shown
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_trainer_of_its_own_starts_and_stops(folder: Path, adopt: Adopt[Daband]):
    trainer = adopt(Daband(folder, "train", "--data-dir", str(folder / "data")))
    trainer.start()
    wait_until(lambda: "daband trains" in trainer.printed)
    assert trainer.stop() == 0
    said = [line for line in trainer.printed.splitlines() if not line.startswith("{")]
    assert len(said) == 1, said


def test_an_experiment_takes_its_columns_from_tables_and_its_contexts_from_one(
    service: Server, tmp_path: Path
):
    url, tables = ("--url", service.url), ROOT / "docs" / "tutorial"
    arms = ("--arm", "placebo", "--arm", "low", "--arm", "high", "--config", SMALL)
    sample = ("--sample", str(tables / "mice.csv"), "--sample", str(tables / "humans.csv"))
    apart = [f"--ignore={name}" for name in ("mouse", "patient_id", "treatment", "shrinkage")]
    made = json.loads(daband("experiment", "create", "sampled", *arms, *sample, *apart, *url))
    assert made["context"]["kind"] == "table"
    names = {each["name"]: each["type"] for each in made["context"]["columns"]}
    assert names["sex"] == "categorical"
    stored = json.loads(
        daband("upload", "sampled", str(tables / "humans.csv"), "--ignore", "patient_id", *url)
    )
    assert (stored["contexts"], stored["status"]) == (200, "created")

    columns = tmp_path / "columns.json"
    columns.write_text(json.dumps(made["context"]["columns"]))
    again = json.loads(
        daband("experiment", "create", "declared", *arms, "--columns", str(columns), *url)
    )
    assert again["context"] == made["context"]


def test_contexts_that_do_not_fit_are_refused(service: Server, tmp_path: Path):
    url, table = ("--url", service.url), tmp_path / "humans.csv"
    table.write_text("age,sex\n41,f\n")
    both = outcome_of("experiment", "create", "x", "--arm", "a", "--shape", "1",
                      "--sample", str(table), *url)  # fmt: skip
    assert (both.exit_code, "one of --shape, --columns and --sample" in both.stderr) == (2, True)
    daband("experiment", "create", "plain", "--arm", "a", "--arm", "b", "--shape", "2", *url)
    plain = outcome_of("upload", "plain", str(table), *url)
    assert (plain.exit_code, "have no columns; give an npy file" in plain.stderr) == (2, True)
    daband("experiment", "create", "aged", "--arm", "a", "--arm", "b",
           "--sample", str(table), "--ignore", "sex", *url)  # fmt: skip
    other = outcome_of("upload", "aged", str(table), *url)
    assert (other.exit_code, "sex" in other.stderr) == (2, True)
