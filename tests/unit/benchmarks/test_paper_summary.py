"""The arithmetic of the report."""

from typing import Any

import numpy as np
import pytest

from benchmarks.paper.methods import ABLATION, BY_NAME, SCRATCH, ZERO_SHOT
from benchmarks.paper.pairs_summary import pairs_summary, set_of
from benchmarks.paper.scoring import packed_arms
from benchmarks.paper.summary import selected, spread, table_summary
from benchmarks.paper.tables import pairs_table


def record(method: str, seed: int, target: float = 0.5, **changes: Any) -> dict[str, Any]:
    """A finished run; a made-up one."""
    return {
        "dataset": "digit",
        "method": method,
        "seed": seed,
        "rounds": 19_200,
        "test_count": 9001,
        "config_digest": f"digest of {method}",
        "device_kind": "cpu",
        "device": "abacus",
        "target": target,
        "target_arms": packed_arms(np.array([0, 1, 2, seed])),
        "target_per_class": [target, None, 1.0],
        "source_test": 0.9,
        "source_recent": 0.8,
        "refusals": seed,
        "updates": 300,
        "seconds": 10.0,
        "training_seconds": 5.0,
        "transfer": {"divergence": target},
        "continued": None,
        **changes,
    }


def curve(*regret: float) -> dict[str, list[float]]:
    return {"rounds": [10 * (i + 1) for i in range(len(regret))], "regret": list(regret)}


def test_mean_and_sample_deviation():
    assert spread([0.2, 0.4, 0.6]) == {
        "mean": pytest.approx(0.4),
        "std": pytest.approx(0.2),
        "seeds": [0.2, 0.4, 0.6],
    }
    assert spread([0.3])["std"] == 0.0


def test_a_method_stands_beside_the_papers_figure():
    found = table_summary([record("daband", 0, 0.7), record("daband", 1, 0.8)], "digit")
    entry = found["zero_shot"]["daband"]
    assert (entry["mean"], entry["seeds"]) == (pytest.approx(0.75), [0.7, 0.8])
    assert entry["paper"]["mean"] == 0.6002
    assert len(entry["paper"]["per_class"]) == 10
    assert entry["per_class"] == [pytest.approx(0.75), None, 1.0]
    assert entry["agreement"] == 0.75
    assert entry["refusals"] == 0.5
    assert entry["transfer"] == {"divergence": pytest.approx(0.75)}
    assert list(found["zero_shot"]) == ["daband"]


def test_the_full_column_of_the_ablation_is_daband_itself():
    found = table_summary([record("daband", 0, 0.7), record("w/o D", 0, 0.3)], "digit")["ablation"]
    assert {column: entry["mean"] for column, entry in found.items()} == {"w/o D": 0.3, "full": 0.7}
    assert found["w/o D"]["paper"]["mean"] == 0.3649


def test_the_papers_figures_cover_what_the_paper_ran():
    runs = [record(method.name, 0) for method in BY_NAME.values() if method != SCRATCH]
    found = table_summary(runs, "digit")
    assert len(found["zero_shot"]) == len(ZERO_SHOT) == 7
    assert len(found["ablation"]) == len(ABLATION) == 8
    without = [name for name, entry in found["zero_shot"].items() if entry["paper"] is None]
    assert without == ["nlinucb + ensemble", "daband-plus"]
    assert all(entry["paper"] for entry in found["ablation"].values())


def test_regret_is_compared_with_learning_from_scratch():
    runs = [
        record("daband", 0, continued=curve(1, 2)),
        record("daband", 1, continued=curve(3, 4)),
        record(SCRATCH.name, 0, continued=curve(5, 12)),
        record("nlinucb", 0),
    ]
    found = table_summary(runs, "digit")["continued"]
    assert list(found) == ["daband", SCRATCH.name]
    assert found["daband"]["mean"] == 3.0
    assert found["daband"]["of_scratch"] == 0.25
    assert found["daband"]["curve"]["mean"] == [2.0, 3.0]
    assert found["daband"]["curve"]["std"] == [pytest.approx(2**0.5)] * 2


def test_an_older_configuration_is_another_experiment():
    runs = [
        record("daband", 0, 0.1, config_digest="old"),
        record("daband", 0, 0.6),
        record("daband", 1, 0.2, config_digest="old", device_kind="cuda"),
        record("daband", 1, 0.7),
        record("daband", 1, 0.8),
    ]
    assert [each["target"] for each in selected(runs, "cpu", None)] == [0.6, 0.8]
    assert [each["target"] for each in selected(runs, "cuda", None)] == [0.2]


def test_runs_of_another_length_are_left_out():
    runs = [record("daband", 0, 0.1), record("daband", 0, 0.2, rounds=64)]
    assert [each["target"] for each in selected(runs, "cpu", 19_200)] == [0.1]
    assert [each["target"] for each in selected(runs, "cpu", None)] == [0.2]


def pair_runs(pair: str, nlinucb: float, daband: float, plus: float) -> list[dict[str, Any]]:
    means = {"nlinucb": nlinucb, "daband": daband, "daband-plus": plus}
    return [
        record(method, seed, mean + offset, dataset=pair)
        for method, mean in means.items()
        for seed, offset in enumerate((-0.1, 0.0, 0.1))
    ]


def test_a_recipe_is_reported_alone_and_runs_that_recorded_none_are_of_the_first():
    runs = [record("daband", 0, 0.1), record("daband", 0, 0.2, recipe=4, config_digest="later")]
    found = {recipe: selected(runs, "cpu", None, recipe) for recipe in (None, 1, 4, 6)}
    targets = {recipe: [each["target"] for each in some] for recipe, some in found.items()}
    assert targets == {None: [0.2], 1: [0.1], 4: [0.2], 6: []}


def test_pairs_are_compared_with_the_method_that_does_not_align():
    runs = [
        *pair_runs("gdsc:lung-blood", 0.5, 0.45, 0.6),
        *pair_runs("gdsc:blood-lung", 0.5, 0.65, 0.6),
        *pair_runs("simulated:shifted-0", 0.5, 0.8, 0.6),
        *pair_runs("pancreas:mouse-human", 0.5, 0.49, 0.6),
    ]
    found = pairs_summary(runs)
    assert found["pairs"]["gdsc:lung-blood"]["differences"]["daband"] == pytest.approx(-0.05)
    assert found["pairs"]["gdsc:lung-blood"]["nlinucb"]["std"] == pytest.approx(0.1)
    gain = found["gains"]["daband"]
    assert (gain["worst_pair"], gain["worst"]) == ("gdsc:lung-blood", pytest.approx(-0.05))
    assert gain["below_margin"] == ["gdsc:lung-blood"]
    assert gain["mean_over_pairs"] == pytest.approx(0.39 / 4)
    assert gain["mean_over_sets"] == pytest.approx((0.05 + 0.3 - 0.01) / 3)
    assert found["gains"]["daband-plus"]["below_margin"] == []
    assert gain["bound_below_margin"] == ["gdsc:lung-blood"]  # all seeds differ alike
    assert gain["agreement"] == pytest.approx(0.75)  # three of four contexts, for all seeds


def test_a_single_seed_agrees_with_none():
    runs = [run for run in pair_runs("gdsc:lung-blood", 0.5, 0.6, 0.7) if run["seed"] == 0]
    found = pairs_summary(runs)
    assert found["gains"]["daband"]["agreement"] is None
    assert found["gains"]["daband"]["bound_below_margin"] == ["gdsc:lung-blood"]
    assert found["pairs"]["gdsc:lung-blood"]["standard_errors"]["daband"] is None
    assert "| +0.100 (–) |" in pairs_table(found["pairs"])


def test_a_difference_has_the_standard_error_of_the_seeds_differences():
    pair = "gdsc:lung-blood"
    runs = [record("nlinucb", seed, 0.5, dataset=pair) for seed in range(4)]
    runs += [record("daband", seed, 0.5 + 0.1 * seed, dataset=pair) for seed in range(4)]
    found = pairs_summary(runs)["pairs"]
    # 0, 0.1, 0.2 and 0.3 have a variance of 0.05 / 3.
    expected = (0.05 / 3 / 4) ** 0.5
    assert found[pair]["standard_errors"] == {"daband": pytest.approx(expected)}
    # Student's t with three degrees of freedom: 2.353 leaves 5 % on one side.
    assert found[pair]["lower_bounds"] == {
        "daband": pytest.approx(0.15 - 2.3534 * expected, abs=1e-4)
    }
    assert "| +0.150 (0.065) |" in pairs_table(found)


def test_a_method_is_compared_on_the_seeds_that_it_shares_with_the_baseline():
    runs = pair_runs("gdsc:lung-blood", 0.5, 0.6, 0.7)
    found = pairs_summary(runs[:-1])  # the last seed of daband-plus, 0.8, is not finished
    pair = found["pairs"]["gdsc:lung-blood"]
    assert {method: len(pair[method]["seeds"]) for method in ("nlinucb", "daband")} == {
        "nlinucb": 3,
        "daband": 3,
    }
    assert len(pair["daband-plus"]["seeds"]) == 2
    assert pair["differences"]["daband-plus"] == pytest.approx(0.2)


def test_a_method_without_runs_is_left_out():
    runs = pair_runs("gdsc:lung-blood", 0.5, 0.6, 0.7)
    found = pairs_summary(runs[:6])
    assert found["pairs"]["gdsc:lung-blood"]["differences"] == {"daband": pytest.approx(0.1)}
    assert list(found["gains"]) == ["daband"]
    assert found["gains"]["daband"]["pair_count"] == 1
    assert pairs_summary(runs[:3])["pairs"] == {}
    table = pairs_table(found["pairs"])
    assert (
        "| gdsc:lung-blood | 19200 | 0.500 ± 0.100 | 0.600 ± 0.100 | +0.100 (0.000) | – | – |"
        in table
    )


def test_simulated_worlds_are_grouped_by_kind():
    assert set_of("simulated:shifted-unbalanced-1") == "simulated:shifted-unbalanced"
    assert set_of("warfarin:site1-site3") == "warfarin"
