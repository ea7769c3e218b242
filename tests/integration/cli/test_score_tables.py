"""`daband score` with the policy of an experiment whose contexts are rows of a table."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from model import ContextKind, Learner, exported, to_bytes
from service.cli.main import app
from service.experiment_spec import ExperimentSpec
from tests.support.builders import make_rounds, teach
from tests.support.tables import COLUMNS, MICE

ARMS = ("low", "mid", "high")
CONFIG = {"episode_length": 16, "latent_size": 8, "hidden_sizes": [8], "steps_per_episode": 2}
HUMANS = "id;age;strain;treated_before;stage;dose\n" + "".join(
    f"h{n};{20 + n},5;{'B6' if n % 2 else 'wild'};{'yes' if n % 3 else 'no'};II;3\n"
    for n in range(1200)
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy file that has learned something."""
    spec = ExperimentSpec(
        "doses", ARMS, ContextKind.SHARED, (MICE.width,), config=CONFIG, table=MICE
    )
    learner = Learner(spec.bandit_config(), seed=1)
    teach(learner, make_rounds(learner.config, 48))
    path = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    path.write_bytes(exported(to_bytes(learner, 3), spec.export_facts()))
    return path


@pytest.fixture
def humans(tmp_path: Path) -> Path:
    path = tmp_path / "humans.csv"
    path.write_text(HUMANS)
    return path


def score(policy: Path, contexts: Path, *options: str) -> str:
    done = CliRunner().invoke(
        app, ["score", "--policy", str(policy), "--contexts", str(contexts), *options]
    )
    assert done.exit_code == 0, done.output
    return done.output


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_csv_file_is_scored_like_its_rows_and_its_slots(policy: Path, humans: Path):
    from_csv = lines(score(policy, humans, "--ignore", "id", "--ignore", "dose"))
    rows = [
        {
            "age": 20.5 + n,
            "strain": "B6" if n % 2 else "wild",
            "treated_before": n % 3 > 0,
            "stage": "II",
        }
        for n in range(1200)
    ]
    jsonl, npy = humans.with_suffix(".jsonl"), humans.with_suffix(".npy")
    jsonl.write_text("\n".join(map(json.dumps, rows)))
    assert lines(score(policy, jsonl)) == from_csv
    slots = [[20.5 + n, 0, n % 2, 0, 1 - n % 2, n % 3 > 0, 0.5, 0] for n in range(1200)]
    np.save(npy, np.array(slots, dtype=np.float32))
    assert lines(score(policy, npy)) == from_csv


@pytest.mark.parametrize("name", ["HUMANS.CSV", "humans.txt"])
def test_tables_may_have_other_names(policy: Path, humans: Path, tmp_path: Path, name: str):
    other = tmp_path / name
    other.write_bytes(humans.read_bytes())
    words = ("--id", "id", "--ignore", "dose")
    assert score(policy, other, *words) == score(policy, humans, *words)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.csv", "nowhere.csv: No such file or directory"),
        ("humans.xlsx", "humans.xlsx is a workbook or an archive: save its sheet as CSV."),
    ],
)
def test_what_is_no_table_says_so(policy: Path, tmp_path: Path, name: str, reason: str):
    (tmp_path / "humans.xlsx").write_bytes(b"PK\x03\x04" + bytes(40))
    command = ["score", "--policy", str(policy), "--contexts", str(tmp_path / name)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert done.output.endswith(f"{reason}\n")


def test_the_answer_may_be_a_csv_file_with_ids(policy: Path, humans: Path, tmp_path: Path):
    options = ("--id", "id", "--ignore", "dose")
    expected = lines(score(policy, humans, *options))
    assert [each["id"] for each in expected] == [f"h{n}" for n in range(1200)]
    out = tmp_path / "scored.csv"
    score(policy, humans, *options, "--out", str(out))
    with out.open() as stream:
        found = list(csv.DictReader(stream))
    assert list(found[0]) == [
        *("id", "arm", "mean", "bonus", "transfer_confidence", "abstained"),
        *(f"p({arm})" for arm in ARMS),
    ]
    for row, each in zip(found, expected, strict=True):
        assert (row["id"], row["arm"], row["abstained"]) == (each["id"], each["arm"], "false")
        assert np.float32(row["mean"]) == np.float32(each["mean"])
        assert {arm: float(row[f"p({arm})"]) for arm in ARMS} == each["probabilities"]


def test_a_row_without_an_arm_has_an_empty_cell(policy: Path, humans: Path, tmp_path: Path):
    out = tmp_path / "scored.csv"
    options = ("--ignore", "id", "--ignore", "dose", "--confidence-floor", "1", "--out", str(out))
    score(policy, humans, *options)
    with out.open() as stream:
        assert {(row["arm"], row["abstained"]) for row in csv.DictReader(stream)} == {("", "true")}


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (
            HUMANS,
            (),
            "Unknown column `id`. Columns: age, strain, treated_before, stage. --id names the column of ids, "
            "--ignore leaves a column out.",
        ),
        (
            HUMANS,
            ("--id", "patient"),
            "--id: There is no column `patient` in humans.csv. Its columns: id, age, strain, treated_before, stage, "
            "dose.",
        ),
        (
            HUMANS + " NA ;20;B6;yes;I;3\n",
            ("--id", "id", "--ignore", "dose"),
            "--id: row 1201: Column `id` may not be missing.",
        ),
        (
            HUMANS + "h;x;B6;yes;I;3\n",
            ("--id", "id", "--ignore", "dose"),
            "row 1201: Column `age` takes a finite number that float32 can hold, or null.",
        ),
    ],
)
def test_a_bad_table_leaves_no_file(policy: Path, tmp_path: Path, text, options, reason):
    humans, out = tmp_path / "humans.csv", tmp_path / "scored.csv"
    humans.write_text(text)
    command = ["score", "--policy", str(policy), "--contexts", str(humans), "--out", str(out)]
    done = CliRunner().invoke(app, [*command, *options])
    assert (done.exit_code, done.output) == (2, f"{reason}\n")
    assert [each.name for each in tmp_path.iterdir()] == ["humans.csv"]


def test_only_rows_of_a_table_have_ids(policy: Path, tmp_path: Path):
    contexts = tmp_path / "humans.npy"
    np.save(contexts, np.zeros((1, MICE.width), np.float32))
    command = ["score", "--policy", str(policy), "--contexts", str(contexts), "--id", "id"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert done.output == "--id: Only a table has a column of ids: images have names.\n"


def test_the_policy_file_carries_the_columns(policy: Path):
    from model import manifest_of

    context = manifest_of(policy.read_bytes())["context"]
    assert context["columns"] == MICE.plain()
    assert [each["name"] for each in context["columns"]] == [each["name"] for each in COLUMNS]
