"""Files that hold pickled objects: they are refused, and nothing in them runs."""

import io
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from model import ContextKind, Learner, exported, to_bytes
from service.cli.main import app
from service.columns.schema import TableError
from service.experiment_spec import ExperimentSpec
from service.formats.cells.reading import CellFile
from tests.support.cells import encoded, write_cells

SPEC = ExperimentSpec(
    "doses", ("low", "high"), ContextKind.SHARED, (4,), config={"hidden_sizes": [4]}
)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self._mark,))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


def test_the_trap_works(mark: Path):
    pickle.loads(pickle.dumps(Trap(mark)))  # noqa: S301
    assert mark.exists()


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_contexts_that_are_pickled_are_not_scored(save: Any, mark: Path, tmp_path: Path):
    trapped = np.empty(1, dtype=object)
    trapped[0] = Trap(mark)
    stream = io.BytesIO()
    save(stream, trapped, allow_pickle=True)
    contexts, policy = tmp_path / "contexts.npy", tmp_path / "policy.safetensors"
    contexts.write_bytes(stream.getvalue())
    learner = Learner(SPEC.bandit_config(), seed=1)
    policy.write_bytes(exported(to_bytes(learner, 1), SPEC.export_facts()))
    done = CliRunner().invoke(app, ["score", "--policy", str(policy), "--contexts", str(contexts)])
    assert done.exit_code == 2, done.output
    assert not mark.exists()


@pytest.mark.parametrize("name", ["obs/dose", "X", "var/_index"])
def test_pickled_bytes_among_cells_stay_bytes(name: str, mark: Path, tmp_path: Path):
    path = write_cells(tmp_path / "cells.h5ad", np.ones((3, 2)), ["a", "b"], {"dose": [1, 2, 3]})
    content = np.frombuffer(pickle.dumps(Trap(mark)).ljust(192, b"\0")[:192], "V64")
    with h5py.File(path, "a") as file:
        del file[name]
        encoded(file.create_dataset(name, data=content), "array", "0.2.0")  # opaque bytes
    with suppress(TableError):  # a column of bytes is only refused as what it stands for
        read(path)
    assert not mark.exists()


def read(path: Path) -> None:
    """All of a file of cells."""
    with CellFile(path) as cells:
        cells.column("dose")
        list(cells.rows([0, 1]))
