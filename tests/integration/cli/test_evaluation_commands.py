"""The commands of offline evaluation, on a SQLite database of their own."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.evaluating.pieces.evaluation import DatabasePlace
from service.evaluating.pieces.sweep import Sweep, swept
from service.formats.files import reading
from service.records import Domain, Experiment
from service.storage.database import Database
from service.storage.experiments import Experiments
from tests.support.api import running_api
from tests.support.archives import archive
from tests.support.engines import backwards
from tests.support.evaluations import played
from tests.support.storage import PATIENT, opened_log, sqlite_url
from tests.support.waiting import PATIENT_ENVIRONMENT, eventually

DATA = Path(__file__).parents[2] / "data"
ROUNDS = 300


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def folder(sqlite_template: Path, tmp_path: Path) -> Path:
    """A data folder with the experiment `lab` and its log."""
    path = tmp_path / "data" / "daband.db"
    path.parent.mkdir()
    path.write_bytes(sqlite_template.read_bytes())
    asyncio.run(_played(sqlite_url(path)))
    return path.parent


async def _played(url: str) -> None:
    async with Database.opened(url, PATIENT) as database, opened_log(url) as log:
        await played(Experiments(database), log, "lab", ROUNDS)


def daband(folder: Path, *arguments: str) -> Result:
    environment = {f"DABAND_{name}": value for name, value in PATIENT_ENVIRONMENT.items()}
    given = [*arguments, "--data-dir", str(folder)]
    return CliRunner().invoke(app, given, env=environment)


def done(folder: Path, *arguments: str) -> str:
    outcome = daband(folder, *arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_candidates_are_compared(folder: Path, tmp_path: Path):
    json_file, html_file = tmp_path / "out" / "result.json", tmp_path / "out" / "result.html"
    shown = done(
        folder, "evaluate", "lab", "--candidate", "uniform", "--candidate", "arm:high",
        "--candidate", "system:linucb,alpha=0.3", "--json", str(json_file), "--html", str(html_file),
    )  # fmt: skip
    assert "arm:high" in shown
    result = json.loads(json_file.read_text())
    assert result["rounds"] == ROUNDS
    assert len(result["candidates"]) == 3
    assert "<svg" in html_file.read_text()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "dsjson", "jsonl.gz"])
def test_a_log_is_exported_and_evaluated_the_same(folder: Path, tmp_path: Path, suffix: str):
    file, direct, again = tmp_path / f"log.{suffix}", tmp_path / "a.json", tmp_path / "b.json"
    assert f"{2 * ROUNDS} decisions" in done(folder, "log", "export", "lab", str(file))
    candidates = ("--candidate", "arm:mid", "--candidate", "uniform")
    done(folder, "evaluate", "lab", *candidates, "--json", str(direct))
    done(
        folder, "evaluate", "--log", str(file), *candidates, "--min-propensity", "0.1", "--json", str(again)
    )  # fmt: skip
    first, second = json.loads(direct.read_text()), json.loads(again.read_text())
    assert first["candidates"] == second["candidates"]


def test_a_log_comes_back_as_an_experiment(folder: Path, tmp_path: Path):
    file, back = tmp_path / "log.parquet", tmp_path / "back.parquet"
    done(folder, "log", "export", "lab", str(file))
    config = json.dumps({"latent_size": 4, "hidden_sizes": [8]})
    for _ in range(2):  # an interrupted import can be run again
        received = done(
            folder, "log", "import", "twin", str(file), "--method", "linucb", "--config", config
        )
        assert f"{2 * ROUNDS} decisions and {ROUNDS} rewards are in twin" in received
    done(folder, "log", "export", "twin", str(back))
    with reading(file) as ours, reading(back) as theirs:
        for first, second in zip(ours, theirs, strict=True):
            assert second.decision_id.endswith(first.decision_id)
            for name in (
                "arm",
                "arms",
                "propensity",
                "probabilities",
                "reward",
                "context",
                "domain",
            ):
                assert getattr(first, name) == getattr(second, name)
    other = daband(folder, "log", "import", "twin", str(file), "--method", "nlinucb")
    assert other.exit_code == 2
    assert "exists already" in other.output


@pytest.mark.parametrize(("name", "count"), [("vw.dsjson", 13), ("open_bandit.csv", 300)])
def test_foreign_logs_become_experiments(folder: Path, tmp_path: Path, name: str, count: int):
    config = json.dumps({"latent_size": 4, "hidden_sizes": [8]})
    received = done(folder, "log", "import", "foreign", str(DATA / name), "--config", config)
    assert f"{count} decisions" in received
    result = tmp_path / "result.json"
    done(folder, "evaluate", "foreign", "--candidate", "uniform", "--json", str(result))
    found = json.loads(result.read_text())
    assert found["max_weight"] is None  # nobody promised a floor
    assert found["rounds"] == (12 if name == "vw.dsjson" else 300)
    if name == "open_bandit.csv":
        file = tmp_path / "direct.json"
        done(folder, "evaluate", "--log", str(DATA / name), "--json", str(file))
        direct = json.loads(file.read_text())["candidates"][0]["estimates"]
        assert found["candidates"][0]["estimates"]["snips"] == direct["snips"]


def test_the_past_is_replayed_with_other_choices(folder: Path):
    shown = done(folder, "replay", "lab", "--with", "alpha=0.5", "--with", "method=linucb")
    assert "kept by rejection" in shown
    received = done(
        folder, "replay", "lab", "--with", "alpha=0.05", "--correction", "weighting", "--json"
    )
    result = json.loads(received)
    assert (result["rounds"], result["kept_rounds"]) == (ROUNDS, ROUNDS)
    assert result["changes"] == {"alpha": 0.05}
    assert 0.3 < result["value"] < 1.0


def test_another_process_replays_an_archived_log_with_the_same_bytes(folder: Path):
    replay = ("replay", "lab", "--with", "alpha=0.5", "--json")
    here = done(folder, *replay)
    asyncio.run(_archived(folder))
    assert done(folder, *replay) == here
    assert done(folder, *replay, "--engine", "process", "--workers", "2") == here


async def _archived(folder: Path) -> None:
    options = replace(PATIENT, archive_place=str(folder / "archive"))
    async with Database.opened(sqlite_url(folder / "daband.db"), options) as database:
        await archive(database, await Experiments(database).get("lab"), kept=100)


def test_a_sweep_says_which_variant_would_have_earned_most(folder: Path):
    shown = done(folder, "sweep", "lab", "--with", "alpha=0.5", "--correction", "weighting")
    lines = [line for line in shown.splitlines() if line.strip()]
    assert [line.split()[0] for line in lines[:3]] == ["logged", "as", "alpha=0.5"]
    assert lines[-1].startswith("The log cannot tell")


def test_a_sweep_in_pieces_gives_the_same_bytes(folder: Path):
    url = sqlite_url(folder / "daband.db")
    experiment = asyncio.run(_found(url))
    wanted = Sweep([{}, {"alpha": 0.5}, {"method": "linucb"}], confidence=0.9)
    assert [each.confidence for each in wanted.wanted()] == pytest.approx(3 * [1 - 0.1 / 3])
    seen: list[tuple[int, int]] = []
    place = DatabasePlace(url, PATIENT)
    whole = swept(experiment, place, wanted, None, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert json.dumps(swept(experiment, place, wanted, backwards())) == json.dumps(whole)
    assert [each["name"] for each in whole["variants"]] == [
        "as it is",
        "alpha=0.5",
        "method=linucb",
    ]


async def _found(url: str) -> Experiment:
    async with Database.opened(url, PATIENT) as database:
        return await Experiments(database).get("lab")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "lab", "--with", "alpha"), "name=value"),
        (("sweep", "lab", "--with", "alpha=-1"), "#/config/alpha"),
        (("evaluate", "lab", "--address", "127.0.0.1:1"), "--address is for --engine ray"),
        (("evaluate",), "either an experiment or a --log"),
        (("evaluate", "lab", "--log", "x.csv"), "either an experiment or a --log"),
        (("evaluate", "nobody"), "no experiment of this name"),
        (("evaluate", "lab", "--candidate", "nothing"), "candidate"),
        (("evaluate", "lab", "--candidate", "arm:nobody"), "the log has no arm"),
        (("evaluate", "lab", "--candidate", "version:7"), "does not exist"),
        (("evaluate", "lab", "--candidate", "system:linucb,alpha=-1"), "#/config/alpha"),
        (("evaluate", "--log", "none.csv"), "No such file"),
        (("evaluate", "--log", "none.txt"), "must end in one of"),
        (("evaluate", "--log", "none.csv", "--format", "xml"), "--format must be one of"),
        (("log", "export", "nobody", "x.jsonl"), "no experiment of this name"),
        (("log", "import", "new", "none.csv"), "No such file"),
        (("log", "import", "new", "none.csv", "--config", "{"), "must be JSON"),
        (("log", "import", "new", "none.csv", "--config", "[]"), "JSON object"),
        (("replay", "lab", "--with", "alpha"), "name=value"),
        (("replay", "lab", "--with", "alpha=-1"), "#/config/alpha"),
        (("replay", "lab", "--with", "method=nothing"), "#/method"),
        (("replay", "lab", "--with", "alpha=1", "--correction", "hope"), "--correction"),
        (("replay", "lab", "--with", "alpha=1", "--address", "x:1"), "--address is for --engine"),
        (("replay", "lab", "--workers", "2"), "--workers and --address are for --with"),
        (("replay", "nobody", "--with", "alpha=1", "--workers", "2"), "no experiment of this"),
    ],
)
def test_a_command_that_fails_prints_one_line(
    folder_once: Path, arguments: tuple[str, ...], message: str
):
    outcome = daband(folder_once, *arguments)
    assert outcome.exit_code == 2, outcome.output
    assert message in outcome.output
    assert "Traceback" not in outcome.output


@pytest.fixture(scope="module")
def folder_once(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as `folder`, for tests that change nothing."""
    path = tmp_path_factory.mktemp("once") / "daband.db"
    path.write_bytes(sqlite_template.read_bytes())
    asyncio.run(_played(sqlite_url(path)))
    return path.parent


def test_target_decisions_without_rewards_are_contexts(folder: Path, tmp_path: Path):
    file = tmp_path / "log.jsonl"
    assert f"{ROUNDS} decisions" in done(folder, "log", "export", "lab", str(file), "--rewarded")
    with reading(file) as reader:
        assert {each.domain for each in reader} == {Domain.SOURCE}


def test_the_trainer_learns_from_an_imported_log(folder: Path, tmp_path: Path):
    file = tmp_path / "log.jsonl"
    done(folder, "log", "export", "lab", str(file))
    done(folder, "log", "import", "twin", str(file), "--method", "linucb")
    counts = asyncio.run(_folded(sqlite_url(folder / "daband.db"), "twin"))
    assert counts["folded_rewards"] == ROUNDS
    assert counts["target_contexts"] == ROUNDS


async def _folded(url: str, name: str) -> dict[str, int]:
    async with running_api(url, trainer_inside=True) as api:

        async def counts() -> dict[str, int]:
            found: dict[str, int] = (await api.http.get(f"/experiments/{name}/state")).json()[
                "counts"
            ]
            return found

        async def is_folded() -> bool:
            return (await counts())["folded_rewards"] == ROUNDS

        await eventually(is_folded)
        return await counts()


@pytest.mark.parametrize(
    ("command", "total"),
    [
        (("evaluate", "lab"), 3 * ROUNDS),
        (("replay", "lab", "--with", "alpha=0.3", "--with", "method=linucb"), 3 * ROUNDS),
        (("evaluate", "--log", str(DATA / "open_bandit.csv"), "--skip-bad"), None),
    ],
)
def test_progress_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], total: int | None
):
    looks: list[tuple[int, int | None]] = []

    @contextmanager
    def bar(title: str) -> Iterator[Callable[..., None]]:
        yield lambda done, all_, title=None: looks.append((done, all_))

    monkeypatch.setattr("service.cli.log_evaluation.progress_bar", bar)
    done(folder, *command)
    assert looks
    assert {all_ for _, all_ in looks} == {total}
    assert looks == sorted(looks)
