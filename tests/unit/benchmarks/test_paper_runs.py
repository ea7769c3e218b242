"""Finished runs are kept and not run again."""

import json
import os
from pathlib import Path

import pytest
import torch

from benchmarks.paper import executing
from benchmarks.paper.executing import execute, missing_jobs
from benchmarks.paper.jobs import Job, checked_out
from benchmarks.paper.progress import Lines
from benchmarks.paper.runs import KEY, RunsFile, key_of
from model.config import RECIPE
from service import THREAD_VARIABLES

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
JOB = Job("simulated:shifted-0", "linucb", 0, 64, test_limit=50)


@pytest.fixture
def runs(tmp_path: Path) -> RunsFile:
    return RunsFile(tmp_path / "deep" / "runs.jsonl")


def test_a_finished_run_is_not_run_again(runs):
    other = Job("simulated:shifted-0", "linucb", 1, 64, test_limit=50)
    execute([JOB], runs, Lines(1))
    assert missing_jobs([JOB, other], runs) == [other]
    assert missing_jobs([JOB, other], RunsFile(runs.path)) == [other]


@pytest.mark.parametrize(
    "other",
    [
        Job("simulated:shifted-1", "linucb", 0, 64, test_limit=50),
        Job("simulated:shifted-0", "linucb-p", 0, 64, test_limit=50),
        Job("simulated:shifted-0", "linucb", 0, 65, test_limit=50),
        Job("simulated:shifted-0", "linucb", 0, 64, test_limit=51),
        Job("simulated:shifted-0", "linucb", 0, 64, test_limit=50, device="cuda"),
        Job("simulated:shifted-0", "linucb", 0, 64, test_limit=50, via="http://127.0.0.1:1"),
        Job("simulated:shifted-0", "linucb", 0, 64, 32, test_limit=50),
        Job("simulated:shifted-0", "linucb", 0, 64, test_limit=50, changes=(("alpha", 0.2),)),
    ],
)
def test_another_run_is_another_run(runs, other):
    execute([JOB], runs, Lines(1))
    assert missing_jobs([other], runs) == [other]


def test_a_run_with_continued_training_stands_for_one_without(runs):
    longer = Job("simulated:shifted-0", "linucb", 0, 64, 32, test_limit=50)
    execute([longer], runs, Lines(1))
    assert missing_jobs([JOB, longer], runs) == []


def test_a_record_says_what_was_run_and_what_came_of_it(runs):
    execute([Job("simulated:shifted-0", "nlinucb", 2, 64, 32, test_limit=50)], runs, Lines(1))
    (record,) = runs.records()
    assert key_of(record)[:5] == ("simulated:shifted-0", "nlinucb", 2, 64, 50)
    assert len(record["config_digest"]) == 64
    assert len(record["target_per_class"]) == 5
    assert 0 <= record["target"] <= 1
    assert 0 <= record["source_test"] <= 1
    assert record["updates"] == 1
    assert record["refusals"] in (0, 1)
    assert record["continued"]["rounds"] == list(range(1, 33))
    assert 0 < record["training_seconds"] <= record["seconds"]
    assert record["device"]
    assert record["recipe"] == RECIPE.version
    assert record["commit"] == checked_out()


def test_the_commit_of_a_record_is_that_of_the_files(monkeypatch, tmp_path):
    checked_out.cache_clear()
    commit = checked_out()
    assert commit is None or len(commit.removesuffix("+")) == 40
    monkeypatch.setattr("benchmarks.paper.jobs.ROOT", tmp_path)
    checked_out.cache_clear()
    assert checked_out() is None
    checked_out.cache_clear()


def test_the_key_of_a_job_is_that_of_its_record(runs):
    execute([JOB], runs, Lines(1))
    assert key_of(runs.records()[0]) == JOB.key()
    assert len(JOB.key()) == len(KEY)


def test_half_a_line_of_a_killed_process_is_dropped(runs):
    runs.append({"whole": 1})
    with runs.path.open("a") as file:
        file.write('{"half": ')
    again = RunsFile(runs.path)
    again.append({"next": 2})
    assert again.records() == [{"whole": 1}, {"next": 2}]


@pytest.mark.slow
def test_runs_in_processes_are_the_runs_in_threads(tmp_path):
    found = []
    for name, parallel, processes in (("threads", 2, 0), ("processes", 1, 2)):
        runs = RunsFile(tmp_path / name)
        jobs = [Job("simulated:shifted-0", "nlinucb", seed, 64, test_limit=50) for seed in (0, 1)]
        execute(jobs, runs, Lines(2), parallel, processes)
        records = sorted(runs.records(), key=lambda record: record["seed"])
        found.append(
            [json.dumps([r["target"], r["source_recent"], r["transfer"]]) for r in records]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("own", [None, "backend:native"])
def test_processes_that_share_a_card_give_back_what_they_free(monkeypatch, own):
    for name in (*THREAD_VARIABLES, ALLOCATOR):
        monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(ALLOCATOR, own)
    executing.begin_process(torch.get_num_threads())
    assert os.environ[ALLOCATOR] == (own or "expandable_segments:True")


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_all_other_runs_are_kept_when_one_fails(runs, processes):
    broken = Job("simulated:shifted-0", "linucb", 0, 64, device="no such device")
    with pytest.raises(ExceptionGroup, match="1 of 2 runs failed") as caught:
        execute([broken, JOB], runs, Lines(2), processes=processes)
    (failure,) = caught.value.exceptions
    assert isinstance(failure, RuntimeError)
    assert failure.__notes__ == [f"in the run {broken.label}"]
    assert [key_of(record) for record in runs.records()] == [JOB.key()]
