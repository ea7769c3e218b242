"""Log files that are sent to be evaluated."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from model.ope import EvaluationOptions
from service.evaluating.candidates import parsed
from service.evaluating.file_log import FileOptions, evaluate_file
from service.experiment_spec import MAX_ARMS
from tests.support.api import Api
from tests.support.evaluations import played

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


async def test_a_file_gives_the_figures_of_the_command_line(api: Api, tmp_path: Path):
    await played(api.services.experiments, api.services.event_log, "lab", 60)
    content = (await api.http.get("/experiments/lab/log/export")).content
    names = ["uniform", "arm:mid", "system:linucb,alpha=0.2"]
    query: dict[str, Any] = {
        "candidate": names,
        "confidence": 0.9,
        "min_propensity": 0.1,
        "seed": 3,
    }
    answer = await api.http.post(PATH, params=query, content=content)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    (tmp_path / "log.jsonl").write_bytes(content)
    options = EvaluationOptions(0.9, 10.0, 3)
    wanted = [parsed(each) for each in names]
    expected = evaluate_file(tmp_path / "log.jsonl", wanted, options, FileOptions())
    assert found.pop("log").endswith(".jsonl")
    assert expected.pop("log") == "log.jsonl"
    assert found == json.loads(json.dumps(expected))
    assert found["rounds"] == 60
    listed = (await api.http.get("/evaluations?experiment=lab")).json()
    assert listed["evaluations"] == []  # it is not kept


async def test_bad_lines_are_counted_if_asked(api: Api):
    content = log_of(HEADER, LINE, {"arm": "c"})
    refused = await api.http.post(f"{PATH}?candidate=uniform", content=content)
    assert (refused.status_code, "line 3" in refused.text) == (422, True)
    found = await api.http.post(f"{PATH}?candidate=uniform&skip_bad=true", content=content)
    assert (found.json()["rounds"], found.json()["bad_lines"]) == (1, 1)


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
        ("candidate=uniform", log_of(HEADER, {**LINE, "propensity": 0.0}), "propensity"),
    ],
)
async def test_what_cannot_be_evaluated_says_why(api: Api, query: str, content: bytes, words: str):
    answer = await api.http.post(f"{PATH}?{query}", content=content)
    assert (answer.status_code, words in answer.text) == (422, True), answer.text
