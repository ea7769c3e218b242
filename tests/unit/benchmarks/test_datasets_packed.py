import subprocess
import sys

import numpy as np
import pytest

from benchmarks.datasets import gdsc, office_caltech, pack, registry, simulated
from benchmarks.datasets.folder import MissingDataError
from benchmarks.datasets.packed import packed_names, read_packed, write_pack
from benchmarks.datasets.task import TransferTask, one_hot

RNG = np.random.default_rng(0)
CONTEXTS = {
    "whole numbers": RNG.integers(0, 200, (6, 40)).astype(np.float32),
    "half floats": RNG.integers(-50, 50, (6, 40)).astype(np.float32) / 4,
    "few values a row": np.log1p(RNG.integers(0, 3, (6, 40))).astype(np.float32),
    "floats": RNG.standard_normal((6, 40)).astype(np.float32),
    "huge": np.full((6, 40), 1e30, np.float32),
    "grey": RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8),
    "colour": RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
}


def make_task(name: str, contexts, has_source_test: bool = False) -> TransferTask:
    rewards = one_hot(np.array([0, 1, 2, 0, 1, 2]), 3)
    return TransferTask(
        name=name,
        arms=("a", "b", "c"),
        exclusive_rewards=True,
        source_contexts=contexts,
        source_rewards=rewards,
        target_contexts=contexts[:4],
        target_rewards=rewards[:4],
        test_contexts=contexts[4:],
        test_rewards=rewards[4:],
        source_test_contexts=contexts[:2] if has_source_test else None,
        source_test_rewards=rewards[:2] if has_source_test else None,
    )


@pytest.mark.parametrize("has_source_test", [False, True])
@pytest.mark.parametrize("kind", CONTEXTS)
def test_a_packed_task_is_equal_to_itself(tmp_path, kind, has_source_test):
    task = make_task("tiny", CONTEXTS[kind], has_source_test)
    write_pack(tmp_path / "packed.npz", [task])
    assert read_packed(tmp_path / "packed.npz", "tiny").equals(task)


def test_rows_with_few_values_are_stored_as_codes(tmp_path):
    write_pack(tmp_path / "packed.npz", [make_task("tiny", CONTEXTS["few values a row"])])
    with np.load(tmp_path / "packed.npz") as file:
        kinds = {key.partition(".")[2] for key in file}
    assert kinds == {"", "codes", "sizes", "values", "plain"}


def test_tasks_share_their_arrays(tmp_path):
    tasks = [make_task(name, CONTEXTS["floats"]) for name in ("one", "two")]
    write_pack(tmp_path / "one.npz", tasks[:1])
    write_pack(tmp_path / "both.npz", tasks)
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "both.npz") as both:
        assert set(one) == set(both)
    assert packed_names(tmp_path / "both.npz") == ("one", "two")
    assert read_packed(tmp_path / "both.npz", "two").equals(tasks[1])


def test_an_npz_file_of_others_is_no_pack(tmp_path):
    np.savez(tmp_path / "other.npz", manifest=np.array('{"format": "other", "tasks": {"a": {}}}'))
    assert packed_names(tmp_path / "other.npz") == ()
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    assert packed_names(tmp_path / "other.npz") == ()


def test_load_prefers_a_pack_and_falls_back_to_the_files(tmp_path):
    packed, other = office_caltech.NAMES[:2]
    np.savez(tmp_path / "another.npz", x=np.zeros(2))
    write_pack(tmp_path / "packed.npz", [make_task(packed, CONTEXTS["floats"])])
    assert registry.load(packed, tmp_path).equals(make_task(packed, CONTEXTS["floats"]))
    with pytest.raises(MissingDataError, match=office_caltech.FILE):
        registry.load(other, tmp_path)


def test_an_unknown_task_names_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"no task mnist; tasks: .*pancreas:mouse-human"):
        registry.load("mnist", tmp_path)


def test_pairs_are_known_and_complete():
    assert set(registry.PAIRS) <= set(registry.names())
    kinds = [name.partition(":")[0] for name in registry.PAIRS]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "office-caltech": 12,
        "pancreas": 1,
        "warfarin": 13,
        "gdsc": 12,
        "simulated": 6,
    }
    assert len(set(registry.names())) == len(registry.names())


def test_a_task_chooses_recipes_or_reports_them():
    chosen = {name for name in registry.names() if registry.part_of(name) is registry.Part.CHOOSE}
    assert chosen == {
        *office_caltech.NAMES,
        *gdsc.NAMES,
        *("rendered-digits", "mnist-blur", "mnist-inverted", "mnist-noise"),
        *(name for name in simulated.NAMES if name.endswith("-0")),
    }


def test_the_command_packs_what_load_finds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pack, "load", lambda name, root: make_task(name, CONTEXTS["grey"]))
    pack.main([str(tmp_path / "new" / "packed.npz"), "vectors", "digit"])
    assert packed_names(tmp_path / "new" / "packed.npz") == (*registry.VECTORS, "digit")
    assert "42 tasks" in capsys.readouterr().out


def test_packs_are_read_with_numpy_alone(tmp_path):
    name = office_caltech.NAMES[0]
    write_pack(tmp_path / "packed.npz", [make_task(name, CONTEXTS["few values a row"])])
    script = f"""
import sys
for module in ("PIL", "pandas", "torch", "scipy", "sklearn"):
    sys.modules[module] = None
from benchmarks.datasets.registry import load
print(load({name!r}, {str(tmp_path)!r}).name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == name, done.stderr
