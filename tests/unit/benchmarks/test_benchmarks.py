"""The benchmarks run and say what the documentation says they say; no figure is checked here."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu, model_speed, peers
from model.config import system_config
from model.learner import Learner
from model.rounds import Domain, RewardedRound


def test_peers_print_speed_beside_regret(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "peers.json"
    peers.main(["--quick", "--json", str(file)])
    written = json.loads(file.read_text())
    names = {peers.OURS, peers.STATISTICS, peers.MABWISER, peers.MABWISER_BATCH, peers.VW}
    assert names <= written["libraries"].keys()
    for row in written["libraries"].values():
        assert min(row.values()) >= 0
        assert set(row) == {
            "decisions_per_second",
            "folds_per_second",
            "loops_per_second",
            "regret_per_round",
        }
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert "regret a round" in shown


def test_the_same_algorithm_has_the_same_regret():
    found = peers.measure(3 * peers.BATCH, seeds=1)
    theirs = found[peers.MABWISER_BATCH]["regret_per_round"]
    assert found[peers.OURS]["regret_per_round"] == pytest.approx(theirs, rel=0.02)


def test_the_gpu_benchmark_shows_where_the_time_goes(tmp_path: Path):
    file = tmp_path / "gpu.json"
    gpu.main(["--device", "cpu", "--quick", "--json", str(file)])
    found = json.loads(file.read_text())
    assert set(found) == {"machine", "ceilings", "selection", "parity", "training"}
    assert [row["arms"] for row in found["selection"]] == [10, 20]
    shown = {"decisions a second", "p99, ms", "encoder alone, ms", "UCB over encoder"}
    assert all(shown <= row.keys() for row in found["selection"])
    assert all(row["of which no tie"] == 0 for row in found["parity"])


@pytest.mark.slow
def test_the_cost_of_the_model_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "model.json"
    model_speed.main(["--repeats", "2", "--rounds", "400", "--json", str(file)])
    figures = json.loads(file.read_text())
    assert len(figures) == 10
    assert min(figures.values()) > 0
    assert "rebuild of 200 rounds, ms" in figures
    assert "Cost of the model" in capsys.readouterr().out


def test_selecting_is_compared_with_the_same_selection():
    config = system_config("nlinucb", arm_count=3, context_shape=(5,), hidden_sizes=(16,))
    learner = Learner(config, seed=0)
    rng = np.random.default_rng(0)
    spreads = np.array([1, 30, 0.1, 5, 200])
    contexts = (3 + spreads * rng.standard_normal((200, 5))).astype(np.float32)
    for number, context in enumerate(contexts):
        learner.observe_context(number, Domain.SOURCE, context)  # scales are taken from these
        learner.observe(
            RewardedRound(number, Domain.SOURCE, context, number % 3, float(context[0] > 3))
        )
    learner.train()
    assert learner.encoder_version == 1
    found = model_speed.bare_selection(learner)(contexts)
    expected = learner.policy().score_many(contexts, Domain.SOURCE).ucb.argmax(axis=1)
    assert (found == expected).all()
    assert len(set(found.tolist())) > 1
