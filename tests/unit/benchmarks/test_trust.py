"""The benchmark of the expected target reward: changed tasks, the table of runs."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from benchmarks.datasets.digits import changed
from benchmarks.datasets.registry import PAIRS, STUDENTS
from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from benchmarks.paper.runs import RunsFile
from benchmarks.trust.__main__ import _tasks, main
from benchmarks.trust.against import gains, pairs_table, totals_table
from benchmarks.trust.measuring import Job
from benchmarks.trust.summary import findings, spearman, table
from benchmarks.trust.variants import VARIANTS, altered
from model.config import RECIPE

COUNT = 1000


@pytest.fixture
def task() -> TransferTask:
    rng = np.random.default_rng(0)
    domains = []
    for _ in range(2):
        best = rng.choice(3, COUNT, p=[0.5, 0.3, 0.2])
        contexts = (one_hot(best, 3) + 0.01 * rng.standard_normal((COUNT, 3))).astype(np.float32)
        domains.append((contexts, one_hot(best, 3)))
    return unsplit_task("made", ("a", "b", "c"), domains[0], domains[1])


def prior(rewards: Any) -> list[float]:
    return list(np.bincount(rewards.argmax(axis=1), minlength=3) / len(rewards))


@pytest.mark.parametrize(
    ("variant", "source", "target"), [("target 90 %", 0.4, 0.9), ("source 90 %", 0.9, 0.4)]
)
def test_one_arm_is_best_for_most_of_one_domain(
    task: TransferTask, variant: str, source: float, target: float
):
    found = altered(task, variant, 0)
    shares = [prior(rewards)[0] for rewards in (found.source_rewards, found.target_rewards)]
    assert shares == pytest.approx([source, target], abs=0.01)
    assert found.test_contexts is found.target_contexts
    assert (found.target_contexts.argmax(axis=1) == found.target_rewards.argmax(axis=1)).all()


def test_an_arm_that_is_absent_from_the_source_is_best_in_the_target(task: TransferTask):
    found = altered(task, "new arm", 0)
    assert prior(found.source_rewards)[1] == 0 < prior(found.target_rewards)[1]


def test_noise_says_nothing_of_the_best_arm(task: TransferTask):
    found = altered(task, "noise", 0)
    agrees = found.target_contexts.argmax(axis=1) == found.target_rewards.argmax(axis=1)
    assert agrees.mean() < 0.6
    one, other = (np.sort(each, axis=0) for each in (found.target_contexts, task.target_contexts))
    assert np.array_equal(one, other)


def test_permuted_arms_all_pay_for_others(task: TransferTask):
    found = altered(task, "permuted", 0)
    assert not (found.target_rewards.argmax(axis=1) == task.target_rewards.argmax(axis=1)).any()
    assert sorted(prior(found.target_rewards)) == sorted(prior(task.target_rewards))
    assert np.array_equal(found.test_rewards, found.target_rewards)
    assert np.array_equal(found.target_contexts, task.target_contexts)
    assert np.array_equal(found.source_rewards, task.source_rewards)


def test_a_variant_depends_on_its_seed_alone(task: TransferTask):
    for variant in VARIANTS:
        assert altered(task, variant, 1).equals(altered(task, variant, 1))
    assert not altered(task, "noise", 1).equals(altered(task, "noise", 2))


def run(earned: float, reward: float, word: str, **changes: Any) -> dict[str, Any]:
    verdict = {"word": word, "reasons": ["the source never paid arm a"]}
    judgement = {"expected": {"reward": reward, "lower": reward - 0.25}, "verdict": verdict}
    aucs = {"auc": 0.7, "margin_auc": 0.6}
    shared = {"dataset": "made:1", "variant": "plain", "method": "daband", "is_exclusive": True}
    return {**shared, "earned": earned, "best": 1.0, **aucs, "judgement": judgement, **changes}


def test_the_table_shows_errors_and_how_often_the_bound_holds():
    records = [run(0.9, 0.8, "aligned"), run(0.5, 0.6, "weak"), run(0.2, 0.5, "weak")]
    row = table(records).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[10:12] == ["0.700", "0.600"]
    assert cells[3:9] == ["3", "0.533", "0.633", "0.167", "1.00", "67%"]
    assert cells[-3:] == ["1", "2", "0"]


def test_what_must_not_happen_is_counted():
    records = [
        run(0.95, 0.2, "do not trust"),
        run(0.1, 0.9, "aligned", variant="noise"),
        run(0.5, 0.5, "weak", variant="new arm"),
    ]
    untrusted, noise, permuted, absent = findings(
        [*records, run(0.0, 0.9, "aligned", variant="permuted")]
    )
    assert permuted.startswith("1 of 1 permuted targets")
    assert untrusted.startswith("1 of 1 targets")
    assert noise.startswith("1 of 1 noise targets")
    assert absent.startswith("1 of 1 absent arms")


def test_ranks_are_compared_not_values():
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 100.0])) == pytest.approx(1.0)
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert spearman(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) == 0
    tied, other = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(tied, other) == pytest.approx(spearman(tied, other[[0, 2, 1, 3]]))


def test_a_data_set_whose_name_begins_like_anothers_is_one_of_its_own():
    records = [run(0.5, 0.5, "weak", dataset=name) for name in ("digit", "digit", "digit-back")]
    rows = [line.split(" | ")[2:4] for line in table(records).splitlines()[2:]]
    assert rows == [["digit", "2"], ["digit-back", "1"], ["all exclusive", "3"]]


def test_methods_are_compared_with_the_baseline_on_seeds_that_both_have():
    pair, other = "office-caltech:amazon-dslr", "warfarin:white-asian"
    earned = {
        ("nlinucb", pair): [0.5, 0.4],
        ("daband", pair): [0.6, 0.7, 0.9],
        ("nlinucb", other): [0.5],
        ("daband", other): [0.2],
    }
    records = [
        run(value, 0.5, "weak", dataset=name, method=method, seed=seed, best=0.5)
        for (method, name), values in earned.items()
        for seed, value in enumerate(values)
    ]
    found = gains(records)
    # A share of the best possible, seeds 0 and 1 alone; Student's t of 95 % with one degree is 6.314.
    assert [each.mean for each in found] == pytest.approx([0.4, -0.6])
    assert found[0].bound == pytest.approx(0.4 - 6.3138 * 0.2, abs=1e-3)
    assert found[1].bound is None
    choose, report, both = totals_table(found).splitlines()[2:]
    assert choose.split(" | ")[2:6] == ["choose", "1", "2", "+0.400"]
    assert choose.endswith("1 of 1 |")
    assert f"−0.600 ({other})" in report
    assert both.split(" | ")[3:6] == ["2", "1–2", "−0.100"]
    assert f"| plain | choose | {pair} | +0.400 (−0.863) |" in pairs_table(found)


def test_finished_runs_are_not_made_again(tmp_path, capsys):
    played = ["--pairs", "simulated:shifted-0", "--methods", "nlinucb", "--seeds", "0"]
    played += ["--rounds", "64", "--processes", "1", "--device", "cpu", "--out"]
    job = Job("simulated:shifted-0", "plain", "nlinucb", 0, "cpu", None, 64)
    record = run(0.5, 0.5, "weak", **asdict(job), recipe=RECIPE.version)
    out = tmp_path / "runs.jsonl"
    RunsFile(out).append(record)
    main([*played, str(out)])
    assert "1 runs, 1 of them" in capsys.readouterr().out
    assert RunsFile(out).records() == [record]


def test_tasks_are_named_or_begin_with_a_name():
    assert _tasks(None) == list(PAIRS)
    assert _tasks(["digit"]) == ["digit"]
    assert _tasks(["mnist-", "students"]) == [*changed.NAMES, *STUDENTS]
