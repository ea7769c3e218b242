"""What is read of .h5ad files: matrices of every layout, columns, names; bad files."""

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from service.columns.schema import TableError
from service.formats.cells import reading
from service.formats.cells.reading import CellFile
from tests.support.cells import TEXT, write_cells, write_column
from tests.support.strategies import repeatable

LAYOUTS = ["array", "csr_matrix", "csc_matrix"]
GENES = ["Ins1", "Gcg", "Sst", "Ppy"]
VALUES = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 0]], dtype=np.float32)
OBS = {
    "donor": ["b", None, "a"],
    "age": np.array([3, 4, 5]),
    "score": np.array([0.5, np.nan, 1.0]),
    "batch": [7, None, 9],
}


def matrix(path: Path, genes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    with CellFile(path) as file:
        parts = list(file.rows(genes))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_columns_and_values_are_read(layout: str, tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", VALUES, GENES, OBS, layout)
    with CellFile(path) as file:
        assert file.genes == GENES
        assert file.cells == 3
        assert file.obs_names == ["_index", "donor", "age", "score", "batch"]
        assert file.column("_index").to_pylist() == ["cell0", "cell1", "cell2"]
        assert file.column("donor").to_pylist() == ["b", None, "a"]
        assert file.column("age").to_pylist() == [3, 4, 5]
        assert file.column("batch").to_pylist() == [7, None, 9]
        with pytest.raises(TableError, match="no column `tissue` in obs"):
            file.column("tissue")
    values, sums = matrix(path, [3, 1])
    assert np.array_equal(values, VALUES[:, [3, 1]])
    assert sums.tolist() == [3, 0, 5]


@repeatable(40)
@given(
    arrays(np.int32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.integers(0, 3)),
    st.data(),
)
def test_all_layouts_hold_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, data: st.DataObject
):
    folder = tmp_path_factory.mktemp("cells")
    names = [f"g{place}" for place in range(values.shape[1])]
    some = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True, min_size=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "ROWS", data.draw(st.integers(1, 4)))
        for layout in LAYOUTS:
            found, sums = matrix(write_cells(folder / "a.h5ad", values, names, None, layout), some)
            assert np.array_equal(found, values[:, some])
            assert np.array_equal(sums, values.sum(axis=1))


def test_files_of_older_versions_are_read(tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", VALUES, GENES, {"age": OBS["age"]}, "csr_matrix")
    with h5py.File(path, "a") as file:
        del file["X"].attrs["encoding-type"]
        file["X"].attrs["h5sparse_format"] = "csr"
        file["X"].attrs["h5sparse_shape"] = file["X"].attrs.pop("shape")
        levels = file["obs"].create_group("__categories")
        levels.create_dataset("donor", data=np.array(["a", "b"], dtype=object), dtype=TEXT)
        codes = file["obs"].create_dataset("donor", data=np.array([1, -1, 0], dtype=np.int8))
        codes.attrs["categories"] = levels["donor"].ref
        file["obs"].attrs["column-order"] = np.array(["age", "donor"], dtype=TEXT)
    with CellFile(path) as opened:
        assert opened.column("donor").to_pylist() == ["b", None, "a"]
    assert np.array_equal(matrix(path, [0, 1, 2, 3])[0], VALUES)


def test_what_is_no_file_of_cells_is_refused(tmp_path: Path):
    path = tmp_path / "a.h5ad"
    path.write_bytes(b"no hdf5")
    with pytest.raises(TableError, match=r"a\.h5ad is no readable \.h5ad file"):
        CellFile(path)
    with h5py.File(path, "w") as file:
        file["X"] = VALUES
    with pytest.raises(TableError, match="no readable"):
        CellFile(path)
    whole = write_cells(path, VALUES, GENES, None, "csr_matrix").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TableError, match="no readable"):
        CellFile(path)
    with pytest.raises(FileNotFoundError):
        CellFile(tmp_path / "nothing.h5ad")


def test_a_matrix_that_does_not_fit_is_refused(tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", VALUES, GENES[:3])
    with pytest.raises(TableError, match="another shape"):
        CellFile(path)
    path = write_cells(tmp_path / "b.h5ad", VALUES, GENES, None, "csr_matrix")
    with h5py.File(path, "a") as file:
        file["X/indices"][0] = 99
    with pytest.raises(TableError, match="beyond its shape"):
        matrix(path, [0])
    with h5py.File(path, "a") as file:
        file["X"].attrs["encoding-type"] = "awkward-array"
    with CellFile(path) as opened, pytest.raises(TableError, match="awkward-array"):
        list(opened.rows([0]))


def test_h5py_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_cells(tmp_path / "a.h5ad", VALUES, GENES)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(TableError, match=r"pip install 'daband\[h5ad\]'"):
        CellFile(path)


def test_a_column_without_a_group_is_refused(tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", VALUES, GENES, {"age": OBS["age"]})
    with h5py.File(path, "a") as file:
        del file["obs/age"]
        write_column(file["obs"], "age", ["x", None, "y"])
        del file["obs/age/categories"]
    with CellFile(path) as opened, pytest.raises(TableError, match="no readable"):
        opened.column("age")
