"""`daband fit`: from two tables to arms, a report and a policy, the same as the service's."""

import csv
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from daband_client import AsyncClient
from daband_client.answers import State, Training
from daband_client.batches import table_body
from model import manifest_of
from service.cli.fit import run
from service.cli.fit.tables import FitTables, surveyed
from service.cli.main import app
from tests.support.api import Api, asgi, running_api
from tests.support.learning import QUICK_TRAINING
from tests.support.storage import sqlite_url
from tests.support.waiting import eventually

ARMS = ("high", "low")


def row(random: np.random.Generator, shift: float) -> tuple[list[str], int]:
    """A subject whose marker says which arm is best."""
    best = int(random.integers(2))
    marker = random.normal(2.0 * best - 1.0, 0.3) + shift
    crp = "NA" if random.random() < 0.1 else f"{random.gamma(2.0):.2f}"
    return [f"{marker:.3f}", "B6" if random.random() < 0.5 else "BALB", crp], best


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mice.csv` and `humans.csv` in a folder."""
    folder, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(5)
    mice = ["mouse,marker,strain,crp,<empty>,treatment,outcome"]
    for number in range(400):
        cells, best = row(random, 0.0)
        arm = int(random.integers(2))
        outcome = 80.0 if arm == best else 20.0
        mice.append(",".join([f"m{number}", *cells, "", ARMS[arm], str(outcome)]))
    humans = ["patient;marker;strain;crp;<empty>"]
    for number in range(90):
        cells, _ = row(random, 0.3)
        humans.append(";".join([f"p{number}", *cells, ""]))
    (folder / "mice.csv").write_text("\n".join(mice) + "\n")
    (folder / "humans.csv").write_text("\n".join(humans) + "\n")
    return folder


def words(tables: Path, *further: str) -> list[str]:
    return [
        "fit", "--source", str(tables / "mice.csv"), "--target", str(tables / "humans.csv"),
        "--arm", "treatment", "--reward", "outcome", "--id", "patient", "--ignore", "mouse",
        "--config", json.dumps(QUICK_TRAINING), *further,
    ]  # fmt: skip


def fit(tables: Path, out: Path, *further: str) -> Result:
    """In threads; the tutorial's test trains in processes."""
    files = ("--out", str(out / "arms.csv"), "--policy", str(out / "policy.safetensors"))
    report = ("--report", str(out / "report.html"))
    training = {"DABAND_TRAINING": "thread"}
    return CliRunner(env=training).invoke(app, words(tables, *files, *report, *further))


@pytest.fixture(scope="module")
def first(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The files of one fit, and what it said."""
    out = tmp_path_factory.mktemp("first")
    result = fit(tables, out)
    assert result.exit_code == 0, result.output
    return out, result.stdout


def policy(folder: Path) -> dict[str, Any]:
    """The manifest without the number of its snapshot, which depends on when it was taken."""
    manifest = manifest_of((folder / "policy.safetensors").read_bytes())
    del manifest["version"]
    return manifest


def test_every_row_gets_an_arm_and_a_person_an_answer(first: tuple[Path, str]):
    out, said = first
    rows = list(csv.DictReader((out / "arms.csv").read_text().splitlines()))
    assert [each["id"] for each in rows] == [f"p{number}" for number in range(90)]
    assert {each["arm"] for each in rows} == set(ARMS)
    assert all(float(each["p(high)"]) + float(each["p(low)"]) == 1 for each in rows)
    assert all(0 <= float(each["transfer_confidence"]) <= 1 for each in rows)
    for each in rows:
        assert float(each["expected_reward"]) == pytest.approx(
            20 + 60 * float(each["mean"]), abs=1e-5
        )
    for words_ in ("verdict ", "expected ", "next ", "an estimate, not a measurement"):
        assert words_ in said
    assert "rewards lie between 20 and 80" in said
    assert "column <empty> has no value and is left out" in said
    assert "past rounds earned" in said
    assert "<svg" in (out / "report.html").read_text()
    assert "20 to 80" in (out / "report.html").read_text()
    _, _, read = (out / "report.html").read_text().partition("<h2>What was read</h2>")
    assert "<li>column &lt;empty&gt; has no value and is left out</li>" in read
    assert policy(out)["reward_range"] == [20.0, 80.0]
    assert policy(out)["encoder_version"] == 6  # one update for each 64 rewards
    assert "not judged" not in said


@pytest.mark.slow
def test_the_same_files_and_seed_give_the_same_policy(
    tables: Path, first: tuple[Path, str], tmp_path: Path
):
    assert fit(tables, tmp_path).exit_code == 0
    assert policy(tmp_path) == policy(first[0])
    assert (tmp_path / "arms.csv").read_bytes() == (first[0] / "arms.csv").read_bytes()


@pytest.mark.slow
def test_another_seed_gives_another_policy(tables: Path, first: tuple[Path, str], tmp_path: Path):
    assert fit(tables, tmp_path, "--seed", "1").exit_code == 0
    assert policy(tmp_path)["arrays_sha256"] != policy(first[0])["arrays_sha256"]


async def learned(api: Api) -> dict[str, Any]:
    """The manifest of the policy, once nothing is due."""

    async def state() -> dict[str, Any]:
        found: dict[str, Any] = (await api.http.get("/experiments/fit/state")).json()
        return found

    async def is_learned() -> bool:
        found = await state()
        return not found["lag"] and found["training"]["status"] == "idle"

    await eventually(is_learned)
    to = f"/experiments/fit/snapshots/{(await state())['policy_version']}/policy"
    manifest = manifest_of((await api.http.get(to)).content)
    del manifest["version"]
    return manifest


async def test_a_service_with_the_same_data_learns_the_same_policy(
    tables: Path, first: tuple[Path, str], tmp_path: Path
):
    found = surveyed(
        FitTables(
            tables / "mice.csv",
            tables / "humans.csv",
            "treatment",
            "outcome",
            id="patient",
            ignore=("mouse",),
        )
    )
    url = sqlite_url(tmp_path / "service.db")
    async with running_api(url) as api:
        transport = httpx.ASGITransport(asgi(api.app, api.services))
        async with AsyncClient("http://test", transport=transport) as client:
            await client.create_experiment(
                "fit", ARMS, found.context, config=QUICK_TRAINING, reward_range=(20.0, 80.0)
            )
            await client.import_history(
                "fit",
                tables / "mice.csv",
                arm="treatment",
                reward="outcome",
                ignore=["mouse", "<empty>"],
            )
            for rows in found.target_contexts():
                await client.upload_contexts("fit", rows)
    async with running_api(url, trainer_inside=True) as api:
        assert await learned(api) == policy(first[0])


async def has_updates(client: AsyncClient) -> bool:
    return (await client.state("fit")).encoder_version >= 2


def test_an_interrupted_fit_is_continued_by_the_same_command(
    tables: Path, first: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def interrupted(client: AsyncClient, *_: object) -> State:
        if step == "_learned":
            await eventually(lambda: has_updates(client))  # in the midst of training
        raise KeyboardInterrupt

    kept = ("--data-dir", str(tmp_path / "data"))
    for step in ("_import", "_upload", "_learned", "_judged"):
        with monkeypatch.context() as patch:
            patch.setattr(run, step, interrupted)
            stopped = fit(tables, tmp_path, *kept)
        assert stopped.exit_code == 130
        assert "the same command continues" in stopped.output
        assert not (tmp_path / "arms.csv").exists()
    assert fit(tables, tmp_path, *kept).exit_code == 0
    assert policy(tmp_path) == policy(first[0])
    assert (tmp_path / "arms.csv").read_bytes() == (first[0] / "arms.csv").read_bytes()
    refused = fit(tables, tmp_path, *kept, "--seed", "1")
    assert refused.exit_code == 2
    assert "experiment-exists" in refused.output


def test_a_temporary_folder_is_removed_whatever_happens(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def interrupted(client: AsyncClient) -> State:
        seen.extend(os.listdir(tmp_path))
        raise KeyboardInterrupt

    seen: list[str] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run, "_learned", interrupted)
    stopped = fit(tables, tmp_path)
    assert stopped.exit_code == 130
    assert "nothing was kept" in stopped.output
    assert any(each.startswith("daband-fit-") for each in seen)
    assert os.listdir(tmp_path) == []


def changed(tables: Path, folder: Path, mice: tuple[str, str] | None, humans: tuple[str, str]):
    """Copies of the tables with a text replaced."""
    for name, change in (("mice.csv", mice), ("humans.csv", humans)):
        text = (tables / name).read_text()
        (folder / name).write_text(text if change is None else text.replace(*change, 1))
    return folder


BAD: list[tuple[tuple[str, str], tuple[str, str], tuple[str, ...], str]] = [
    (("treatment", "arm"), ("", ""), (), "no column `treatment` in mice.csv"),
    (("", ""), ("patient", "subject"), (), "no column `patient` in humans.csv"),
    (("", ""), ("p0;", ";"), (), "row 1: Column `patient` may not be missing"),
    (("strain", "line"), ("", ""), (), "Column `strain` is in humans.csv, but not in mice.csv"),
    (("strain", "line"), ("", ""), (), "Leave it out: --ignore strain"),
    (
        ("", ""),
        ("p0;", "p0;old"),
        (),
        "row 1: Column `marker` of humans.csv holds a text among numbers",
    ),
    (("", ""), ("", ""), ("--ignore", "tail"), "no column `tail` to leave out"),
    (("", ""), ("", ""), ("--reward-range", "0", "50"), "must lie between 0 and 50"),
    (("", ""), ("", ""), ("--config", "[]"), "--config must be a JSON object"),
    (("", ""), ("", ""), ("--method", "magic"), "method"),
    (("high", ""), ("", ""), (), "Column `treatment` may not be missing"),
]


@pytest.mark.parametrize(("mice", "humans", "further", "detail"), BAD)
def test_bad_tables_are_refused_and_nothing_is_written(
    tables: Path,
    tmp_path: Path,
    mice: tuple[str, str],
    humans: tuple[str, str],
    further: tuple[str, ...],
    detail: str,
):
    folder = changed(tables, tmp_path, mice, humans)
    refused = fit(folder, tmp_path, *further)
    assert refused.exit_code == 2, refused.output
    assert detail in refused.output
    assert not (tmp_path / "arms.csv").exists()


def test_labels_of_the_target_are_not_used(tables: Path, tmp_path: Path):
    text = (tables / "humans.csv").read_text().splitlines()
    labelled = [f"{text[0]};treatment;outcome", *(f"{line};low;999" for line in text[1:])]
    (tmp_path / "humans.csv").write_text("\n".join(labelled) + "\n")
    (tmp_path / "mice.csv").write_text((tables / "mice.csv").read_text())
    paths = (tmp_path / "mice.csv", tmp_path / "humans.csv")
    found = surveyed(FitTables(*paths, "treatment", "outcome", "patient", ignore=("mouse",)))
    assert [each["name"] for each in found.context["columns"]] == ["marker", "strain", "crp"]
    assert "column outcome of humans.csv is not used" in [each.text for each in found.remarks]
    plain = surveyed(
        FitTables(
            tables / "mice.csv",
            tables / "humans.csv",
            "treatment",
            "outcome",
            "patient",
            ignore=("mouse",),
        )
    )
    pairs = zip(found.target_contexts(), plain.target_contexts(), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def test_the_names_of_tables_need_not_say_what_they_are(tables: Path, tmp_path: Path):
    paths = tmp_path / "mice.dat", tmp_path / "HUMANS.CSV"
    for path, name in zip(paths, ("mice.csv", "humans.csv"), strict=True):
        path.write_bytes((tables / name).read_bytes())
    found = surveyed(FitTables(*paths, "treatment", "outcome", "patient", ignore=("mouse",)))
    assert found.source_media == "text/csv"
    assert table_body(paths[0], found.source_media, Path.read_bytes)[1] == "text/csv"
    assert table_body(paths[1], None, Path.read_bytes)[1] == "text/csv"


async def test_a_fit_waits_until_no_judgement_is_due():
    judgements = ["due", "due", "done"]

    class Judging:
        async def state(self, name: str) -> Any:
            return SimpleNamespace(training=Training("idle", judgement=judgements.pop(0)))

        async def transfer(self, name: str) -> str:
            return "judged"

    assert await run._judged(Judging()) == "judged"  # type: ignore[arg-type,comparison-overlap]
    assert judgements == []
