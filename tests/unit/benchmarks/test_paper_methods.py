"""The yardsticks beside the systems: no alignment, and full information."""

import json

import numpy as np
import pytest

from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from benchmarks.paper import yardstick
from benchmarks.paper.methods import BY_NAME


def task_of(contexts: np.ndarray, best: np.ndarray) -> TransferTask:
    rewards = one_hot(best, 3)
    return unsplit_task("made", ("a", "b", "c"), (contexts, rewards), (contexts, rewards))


@pytest.mark.parametrize("shape", [(30, 4), (30, 28, 28)])
def test_only_the_teacher_is_missing_without_alignment(shape):
    contexts = np.zeros(shape, np.float32 if len(shape) == 2 else np.uint8)
    task = task_of(contexts, np.arange(30) % 3)
    plus, without = (BY_NAME[name].config(task) for name in ("daband-plus", "nlinucb + ensemble"))
    assert not without.is_aligned
    assert plus.changed(consistency_weight=0.0) == without
    # On vectors nothing is aligned in the first place.
    assert (plus == without) == (len(shape) == 2)


def test_full_information_learns_what_is_linear(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    best = np.arange(60) % 3
    contexts = (one_hot(best, 3) + 0.1 * rng.standard_normal((60, 3))).astype(np.float32)
    task = task_of(contexts * np.array([1.0, 1000.0, 0.001], np.float32), best)
    assert np.array_equal(yardstick.full_information_arms(task), best)
    graded = unsplit_task(
        "made",
        task.arms,
        (contexts, (0.5 + 0.5 * task.source_rewards).astype(np.float32)),
        (contexts, task.target_rewards),
        exclusive_rewards=False,
    )
    assert np.array_equal(yardstick.full_information_arms(graded), best)
    monkeypatch.setattr(yardstick, "load", lambda name, data: task)
    yardstick.main(["--pairs", "gdsc:lung-skin", "--out", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["pairs"] == {"gdsc:lung-skin": {"target": 1.0, "part": "choose"}}
    assert found["command"].endswith(
        "benchmarks.paper.yardstick --pairs gdsc:lung-skin --out " + str(tmp_path / "found.json")
    )
