"""Log files that are sent to be evaluated."""

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from model import MAX_ARMS
from model.ope import EvaluationOptions
from service.evaluating import uploaded_log
from service.evaluating.candidates import parsed
from service.evaluating.file_log import FileOptions, evaluate_file
from service.evaluating.jobs import LOST_FILE, EvaluationJobs
from service.evaluating.request import LogFile, StoredRequest
from service.evaluating.running import EvaluationStores
from tests.support.api import Api
from tests.support.evaluations import played
from tests.support.waiting import eventually

PATH = "/evaluations/file"
HEADER = {
    "format": "daband-log",
    "arms": ["a", "b"],
    "context_kind": "shared",
    "context_shape": [2],
}
LINE = {"decision_id": "1", "arm": "a", "propensity": 0.5, "reward": 1.0, "context": [1.0, 2.0]}


def log_of(*lines: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


@pytest.fixture
async def lab(api: Api) -> Api:
    """A service with an experiment `lab`, beside whose evaluations those of files are kept."""
    await played(api.services.experiments, api.services.event_log, "lab", 60)
    return api


async def sent(api: Api, content: bytes, **query: Any) -> dict[str, Any]:
    """The job of a file."""
    asked = {"experiment": "lab", "candidate": "uniform", **query}
    answer = await api.http.post(PATH, params=asked, content=content)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def shown(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get(f"/evaluations/{job['evaluation_id']}")).json()
    return found


async def ended(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    """The job once it has ended."""

    async def is_over() -> bool:
        return (await shown(api, job))["ended_at"] is not None

    await eventually(is_over)
    return await shown(api, job)


class Endless:
    """An evaluation that reads on until it is stopped."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.has_ended = Event()

    def __call__(self, path: Path, *_: Any, on_progress: Callable[[int, None], None]) -> Any:
        self.paths.append(path)
        try:
            while True:
                on_progress(7, None)
                time.sleep(0.01)
        finally:
            self.has_ended.set()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    found = Endless()
    monkeypatch.setattr(uploaded_log, "evaluate_file", found)
    return found


async def test_a_file_gives_the_figures_of_the_command_line(lab: Api, tmp_path: Path):
    content = (await lab.http.get("/experiments/lab/log/export")).content
    names = ["uniform", "arm:mid", "system:linucb,alpha=0.2"]
    job = await sent(lab, content, candidate=names, confidence=0.9, min_propensity=0.1, seed=3)
    assert (job["status"], job["result"]) == ("running", None)
    done = await ended(lab, job)
    assert (done["status"], done["problem"]) == ("done", None)
    assert done["request"]["file"] == {
        "format": "jsonl",
        "min_propensity": 0.1,
        "skip_bad": False,
    }
    (tmp_path / "log.jsonl").write_bytes(content)
    options = EvaluationOptions(0.9, 10.0, 3)
    wanted = [parsed(each) for each in names]
    expected = evaluate_file(tmp_path / "log.jsonl", wanted, options, FileOptions())
    found = done["result"]
    assert found.pop("log").endswith(".jsonl")
    assert expected.pop("log") == "log.jsonl"
    assert found == json.loads(json.dumps(expected))
    assert found["rounds"] == 60
    (listed,) = (await lab.http.get("/evaluations?experiment=lab")).json()["evaluations"]
    assert listed["evaluation_id"] == job["evaluation_id"]


async def test_bad_lines_are_counted_if_asked(lab: Api):
    content = log_of(HEADER, LINE, {"arm": "c"})
    refused = await ended(lab, await sent(lab, content))
    assert (refused["status"], "line 3" in refused["problem"]) == ("failed", True)
    found = await ended(lab, await sent(lab, content, skip_bad=True))
    assert (found["result"]["rounds"], found["result"]["bad_lines"]) == (1, 1)


async def test_a_file_is_followed_and_stopped(lab: Api, endless: Endless):
    first = await sent(lab, log_of(HEADER, LINE))
    second = await sent(lab, log_of(HEADER, LINE))

    async def has_progress() -> bool:
        return bool((await shown(lab, first))["progress"] == {"done": 7, "total": 0})

    await eventually(has_progress)
    assert (await shown(lab, second))["progress"]["done"] == 0  # one file at a time
    (path,) = endless.paths
    assert path.exists()
    await lab.http.post(f"/evaluations/{first['evaluation_id']}/cancel")
    await eventually(lambda: _is(not path.exists() and endless.has_ended.is_set()))
    assert (await shown(lab, first))["status"] == "cancelled"
    await eventually(lambda: _is(len(endless.paths) == 2))


async def _is(condition: bool) -> bool:
    return condition


async def test_a_process_that_ends_leaves_no_file(lab: Api, endless: Endless):
    jobs = [await sent(lab, log_of(HEADER, LINE)) for _ in range(2)]
    await eventually(lambda: _is(bool(endless.paths)))
    await lab.services.uploaded_logs.close()
    for job in jobs:
        found = await shown(lab, job)
        assert (found["status"], found["problem"]) == ("failed", LOST_FILE)
    assert not any(path.exists() for path in endless.paths)


async def test_the_file_of_a_killed_process_has_to_be_sent_again(lab: Api):
    experiment = await lab.services.experiments.get("lab")
    request = StoredRequest(
        experiment="lab", candidates=(parsed("uniform"),), file=LogFile()
    ).to_json()
    evaluations = lab.services.evaluations
    job = await evaluations.create_claimed(experiment.experiment_id, request, "killed", -1.0)
    services = lab.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    assert await EvaluationJobs(stores, evaluations).run_next()
    found = await shown(lab, {"evaluation_id": job.evaluation_id})
    assert (found["status"], found["problem"]) == ("failed", LOST_FILE)


async def test_a_process_takes_a_number_of_files(
    lab: Api, endless: Endless, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(uploaded_log, "MOST_FILES", 1)
    await sent(lab, log_of(HEADER, LINE))
    query = {"experiment": "lab", "candidate": "uniform"}
    answer = await lab.http.post(PATH, params=query, content=log_of(HEADER, LINE))
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/overloaded")


async def test_the_job_of_a_file_belongs_to_an_experiment(lab: Api):
    query = {"experiment": "none", "candidate": "uniform"}
    answer = await lab.http.post(PATH, params=query, content=log_of(HEADER, LINE))
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("query", "content", "words"),
    [
        ("", log_of(HEADER), "#/candidate"),
        ("candidate=uniform&confidence=1", log_of(HEADER), "#/confidence"),
        ("candidate=uniform&format=parquet", b"PAR1", "#/format"),
        ("candidate=uniform", b"", "line 1"),
        ("candidate=uniform", gzip.compress(log_of(HEADER), mtime=0), "line 1"),
        ("candidate=arm:c", log_of(HEADER, LINE), "no arm"),
        ("candidate=version:1", log_of(HEADER, LINE), "a version belongs to an experiment"),
        ("candidate=file:/etc/passwd", log_of(HEADER, LINE), "command line"),
        ("candidate=system:nothing", log_of(HEADER, LINE), "method"),
        ("candidate=system:daband,hidden_sizes=[1000000]", log_of(HEADER, LINE), "hidden_sizes"),
        ("candidate=uniform", log_of({**HEADER, "context_shape": [10**8]}), "context"),
        (
            "candidate=uniform",
            log_of({**HEADER, "arms": [f"{n}" for n in range(MAX_ARMS + 1)]}),
            "arms",
        ),
    ],
)
async def test_what_cannot_be_evaluated_says_why(lab: Api, query: str, content: bytes, words: str):
    answer = await lab.http.post(f"{PATH}?experiment=lab&{query}", content=content)
    assert (answer.status_code, words in answer.text) == (422, True), answer.text
    assert (await lab.http.get("/evaluations")).json()["evaluations"] == []
