"""Cell files that claim more than they hold, or lie elsewhere: refused, and no pickle is loaded."""

import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from service.columns.schema import TableError
from service.formats.cells.reading import CellFile
from tests.support.hostile_files import Touch


def frame(file: h5py.File, name: str, labels: list[str]) -> None:
    group = file.create_group(name)
    group.attrs["_index"] = "names"
    group.create_dataset("names", data=np.array(labels, dtype="S8"))


def dense(file: h5py.File) -> None:
    frame(file, "obs", ["c1", "c2"])
    frame(file, "var", ["g1", "g2"])
    file.create_dataset("X", data=np.ones((2, 2), dtype=np.float32))


def huge_chunk(file: h5py.File) -> None:
    del file["X"]
    file.create_dataset("X", (2, 2), chunks=(1, 1), maxshape=(None, None), dtype="V100000000")


def huge_column(file: h5py.File) -> None:
    file["obs"].create_dataset("n", (1 << 40,), chunks=(1 << 20,), dtype=np.float64)
    file["obs"].attrs["column-order"] = ["n"]


def linked(file: h5py.File) -> None:
    del file["X"]
    file["X"] = h5py.ExternalLink("/etc/hosts", "X")


def virtual(file: h5py.File) -> None:
    del file["X"]
    layout = h5py.VirtualLayout((2, 2), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "X", (2, 2))
    file.create_virtual_dataset("X", layout)


def huge_sparse(file: h5py.File) -> None:
    del file["X"]
    matrix = file.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "shape": (2, 2)})
    matrix["indptr"] = np.array([0, 1 << 39, 1 << 40])
    for name in ("indices", "data"):
        matrix.create_dataset(name, (1 << 40,), chunks=(1 << 20,), dtype=np.int64)


def references(file: h5py.File) -> None:
    file["obs"].create_dataset("n", data=[file["X"].ref] * 2, dtype=h5py.ref_dtype)
    file["obs"].attrs["column-order"] = ["n"]


def read_all(path: Path) -> None:
    with CellFile(path) as cells:
        for name in cells.obs_names:
            cells.column(name)
        list(cells.rows([0, 1]))


@pytest.mark.parametrize(
    "spoil", [huge_chunk, huge_column, linked, virtual, huge_sparse, references]
)
def test_a_hostile_file_is_refused(tmp_path: Path, spoil: Callable[[h5py.File], None]):
    path = tmp_path / "cells.h5ad"
    with h5py.File(path, "w") as file:
        dense(file)
        spoil(file)
    with pytest.raises(TableError):
        read_all(path)


def test_a_pickle_is_not_loaded(tmp_path: Path):
    path, executed = tmp_path / "cells.h5ad", tmp_path / "executed"
    with h5py.File(path, "w") as file:
        dense(file)
        content = np.void(pickle.dumps(Touch(executed)))
        file["obs"].create_dataset("n", data=np.array([content] * 2))
        file["obs"].attrs["column-order"] = ["n"]
    with CellFile(path) as cells, suppress(TableError):
        cells.column("n")
    assert not executed.exists()
