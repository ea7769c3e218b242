"""`python -m benchmarks.paper`: what it plans, and a quick run from end to end."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.datasets.folder import VARIABLE
from benchmarks.datasets.registry import PAIRS
from benchmarks.paper.__main__ import main
from benchmarks.paper.methods import ABLATION, SCRATCH, ZERO_SHOT
from benchmarks.paper.planning import WITHOUT_DATA, Plan, parsed, planned, ray_options
from service.parallel.opening import EngineOptions

ROOT = Path(__file__).parents[3]


def plan_of(*arguments: str) -> Plan:
    return planned(parsed(arguments))


def test_the_papers_budget_on_digit():
    plan = plan_of("--dataset", "digit")
    # Seven methods, seven columns of the ablation beside daband, and one from scratch; five seeds.
    assert len(plan.jobs) == 5 * (7 + 7 + 1)
    by_method = {job.method: job for job in plan.jobs}
    assert (by_method["daband"].rounds, by_method["daband"].continued_rounds) == (19_200, 1_920)
    assert (by_method["w/o D"].rounds, by_method["w/o D"].continued_rounds) == (19_200, 0)
    assert by_method[SCRATCH.name].total_rounds == 1_920
    assert set(by_method) == {
        *(method.name for method in (*ZERO_SHOT, *ABLATION.values())),
        SCRATCH.name,
    }


def test_the_pairs_are_three_methods_and_three_seeds_each():
    plan = plan_of("--dataset", "pairs")
    assert plan.has_pairs
    assert plan.datasets == ()
    assert Counter(job.dataset for job in plan.jobs) == dict.fromkeys(PAIRS, 9)
    rounds = {job.dataset: job.rounds for job in plan.jobs}
    assert (rounds["pancreas:mouse-human"], rounds["simulated:shifted-0"]) == (3840, 3072)


def test_parts_and_methods_narrow_the_plan():
    plan = plan_of(
        "--methods", "nlinucb", "--parts", "zero-shot", "--seeds", "2", "--rounds", "640"
    )
    assert [(job.method, job.seed, job.rounds) for job in plan.jobs] == [
        ("nlinucb", 0, 640),
        ("nlinucb", 1, 640),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", "cats"],
        ["--parts", "zero-shot,more"],
        ["--methods", "cats"],
        ["--seeds", "0"],
        ["--via", "http://127.0.0.1:1", "--parts", "continued"],
        ["--change", "colour=red"],
    ],
)
def test_bad_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_another_recipe_has_results_of_its_own():
    options = parsed(
        ["--dataset", "pairs", "--change", "view_dropout=0.5", "--change", "gate=auto"]
    )
    assert options.runs == Path("build/paper-changed/runs.jsonl")
    job = planned(options).jobs[0]
    assert dict(job.changes) == {"view_dropout": 0.5, "gate": "auto"}
    quick = parsed(["--quick", "--change", "batch_size=8", "--dataset", "simulated:shifted-0"])
    assert dict(planned(quick).jobs[0].changes) == {"steps_per_episode": 16, "batch_size": 8}


def test_finished_runs_lie_with_the_report_that_is_made_of_them():
    assert parsed([]).runs == Path("docs/results/runs.jsonl")
    assert parsed(["--quick"]).runs == Path("build/paper-quick/runs.jsonl")
    assert parsed(["--runs", "mine.jsonl"]).runs == Path("mine.jsonl")


@pytest.mark.slow
def test_a_quick_run_without_data_plays_the_simulated_task(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "empty"))
    options = ["--quick", "--runs", str(tmp_path / "runs.jsonl"), "--out", str(tmp_path / "report")]
    main(options)
    output = capsys.readouterr().out
    assert "mnist.npz is missing" in output
    assert WITHOUT_DATA in output
    found = json.loads((tmp_path / "report" / "simulated-shifted-0.json").read_text())
    assert [len(found[part]) for part in ("zero_shot", "ablation", "continued")] == [7, 8, 8]
    assert all(0 < entry["mean"] <= 1 for entry in found["zero_shot"].values())
    assert len(list((tmp_path / "report").glob("*.png"))) == 3
    lines = (tmp_path / "runs.jsonl").read_text()
    main(options)
    count = len(lines.splitlines())
    assert f"{count} runs, {count} of them" in capsys.readouterr().out
    assert (tmp_path / "runs.jsonl").read_text() == lines


@pytest.mark.slow
def test_it_runs_on_a_machine_with_torch_and_numpy_alone(tmp_path):
    """Nothing else of what the project needs may be imported on the way."""
    script = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"rich", "matplotlib", "httpx", "safetensors", "PIL",
                                     "pydantic", "msgspec", "scipy"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import importlib.util
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if name in ("rich", "matplotlib") else known(name, *more))
from benchmarks.paper.__main__ import main
main(["--dataset", "simulated:shifted-0", "--methods", "nlinucb", "--seeds", "1", "--rounds", "64",
      "--runs", {str(tmp_path / "runs.jsonl")!r}, "--out", {str(tmp_path / "report")!r}])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "[1/1] simulated:shifted-0 · nlinucb · seed 0" in ended.stdout
    assert "No plots" in ended.stdout
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--address", "127.0.0.1:1"], "--address is for --engine ray"),
        (["--engine", "ray", "--device", "cuda"], "leave out --device"),
        (["--engine", "ray", "--address", "h:1", "--processes", "2"], "workers of its own"),
    ],
)
def test_options_of_an_engine_must_fit(arguments, reason, capsys):
    with pytest.raises(SystemExit):
        parsed(arguments)
    assert reason in capsys.readouterr().err


def test_runs_go_to_a_cluster_only_when_asked():
    assert ray_options(parsed(["--processes", "2"])) is None
    assert ray_options(parsed(["--engine", "ray", "--processes", "2"])) == EngineOptions("ray", 2)
