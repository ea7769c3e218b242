"""An .h5ad file as anndata lays it out: the matrix `X` by rows, columns of `obs`, names of `var`."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.columns.schema import TableError, absent_column

SUFFIX = ".h5ad"
ROWS = 1024  # of the matrix at once
_INDEX, _ENCODING = "_index", "encoding-type"
_OLD_ENCODING, _OLD_SHAPE = "h5sparse_format", "h5sparse_shape"
_SPARSE = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}

Rows = np.ndarray  # (m, genes)
_Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]


class CellFile(AbstractContextManager["CellFile"]):
    """An open .h5ad file; `TableError` says what cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reading():
            self._file = _h5py().File(path, "r")
        try:
            with self._reading():
                self.genes: list[str] = self._texts(self._file["var"], self._index("var"))
                self.obs_names = [self._index("obs"), *self._columns("obs")]
                self.cells = len(self._file["obs"][self._index("obs")])
                self._check_shape()
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def column(self, name: str) -> pa.Array:
        """A column of `obs`, or its index."""
        if name not in self.obs_names:
            raise absent_column(name, f"obs of {self.path.name}", self.obs_names)
        with self._reading():
            return self._values(self._file["obs"], name)

    def rows(self, genes: Sequence[int]) -> Iterator[tuple[Rows, np.ndarray]]:
        """The values (m, len(genes)) of these genes as float64, and the sums (m,) of all genes."""
        kind = self._sparse_kind()
        with self._reading():
            if kind is None:
                yield from self._dense_rows(np.asarray(genes, dtype=np.int64))
            else:
                sparse = self._by_row() if kind == "csr" else self._by_column()
                yield from self._sparse_rows(sparse, np.asarray(genes, dtype=np.int64))

    def _dense_rows(self, genes: np.ndarray) -> Iterator[tuple[Rows, np.ndarray]]:
        for start in range(0, self.cells, ROWS):
            rows = self._file["X"][start : start + ROWS].astype(np.float64)
            yield rows[:, genes], rows.sum(axis=1)

    def _sparse_rows(
        self, triplets: Iterator[tuple[int, _Triplets]], genes: np.ndarray
    ) -> Iterator[tuple[Rows, np.ndarray]]:
        places = np.full(len(self.genes), -1)
        places[genes] = np.arange(len(genes))
        for count, (rows, columns, values) in triplets:
            if len(columns) and not 0 <= columns.min() <= columns.max() < len(self.genes):
                raise TableError(f"{self.path.name}: X has an index beyond its shape.")
            place = places[columns]
            is_wanted = place >= 0
            cells = rows[is_wanted] * len(genes) + place[is_wanted]
            found = np.bincount(cells, values[is_wanted], count * len(genes))
            yield (
                found.reshape(count, len(genes)),
                np.bincount(rows, values, count),
            )

    def _by_row(self) -> Iterator[tuple[int, _Triplets]]:
        """Some rows at a time: how many, and rows, columns and values of what is not 0."""
        matrix = self._file["X"]
        ends = matrix["indptr"][:].astype(np.int64)
        for start in range(0, self.cells, ROWS):
            stop = min(start + ROWS, self.cells)
            rows = np.repeat(np.arange(stop - start), np.diff(ends[start : stop + 1]))
            part = slice(ends[start], ends[stop])
            yield (
                stop - start,
                (rows, matrix["indices"][part].astype(np.int64), _floats(matrix["data"][part])),
            )

    def _by_column(self) -> Iterator[tuple[int, _Triplets]]:
        """The same of a matrix that lies by columns: all that is not 0 is held in memory."""
        matrix = self._file["X"]
        ends = matrix["indptr"][:].astype(np.int64)
        rows = matrix["indices"][:].astype(np.int32)
        order = np.argsort(rows, kind="stable")
        columns = np.repeat(np.arange(len(self.genes), dtype=np.int32), np.diff(ends))[order]
        values, rows = matrix["data"][:][order], rows[order]
        for start in range(0, self.cells, ROWS):
            stop = min(start + ROWS, self.cells)
            part = slice(*np.searchsorted(rows, (start, stop)))
            yield (
                stop - start,
                (
                    rows[part].astype(np.int64) - start,
                    columns[part].astype(np.int64),
                    _floats(values[part]),
                ),
            )

    def _sparse_kind(self) -> str | None:
        attributes = self._file["X"].attrs
        name = attributes.get(_ENCODING, attributes.get(_OLD_ENCODING, "array"))
        if name != "array" and name not in _SPARSE:
            raise TableError(f"{self.path.name}: X is a {name}; expected an array, CSR or CSC.")
        return _SPARSE.get(name)

    def _check_shape(self) -> None:
        matrix = self._file["X"]
        shape = matrix.attrs.get("shape", matrix.attrs.get(_OLD_SHAPE))
        found = tuple(matrix.shape if shape is None else map(int, shape))
        if found != (self.cells, len(self.genes)):
            raise TableError(f"{self.path.name}: X has another shape than obs and var.")

    def _index(self, frame: str) -> str:
        return str(self._file[frame].attrs[_INDEX])

    def _columns(self, frame: str) -> list[str]:
        group = self._file[frame]
        return [str(each) for each in group.attrs.get("column-order", ()) if each in group]

    def _texts(self, group: Any, name: str) -> list[str]:
        found: list[str] = self._values(group, name).cast(pa.string()).to_pylist()
        return found

    def _values(self, group: Any, name: str) -> pa.Array:
        found = group[name]
        if hasattr(found, "keys"):  # a group: categories, or values with a mask
            if "codes" in found:
                return _labelled(self._values(found, "categories"), found["codes"][:])
            values = self._values(found, "values")
            return pa.array(values.to_pylist(), values.type, mask=found["mask"][:])
        if "categories" in found.attrs:  # as before anndata 0.8: a reference to the categories
            categories = self._file[found.attrs["categories"]]
            return _labelled(_plain(categories), found[:])
        return _plain(found)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (TableError, FileNotFoundError, PermissionError):
            raise
        except (OSError, KeyError, ValueError, TypeError, IndexError, RuntimeError):
            # h5py's messages name offsets in the file, and no place that a person knows.
            raise TableError(f"{self.path.name} is no readable .h5ad file.") from None


def _plain(dataset: Any) -> pa.Array:
    is_text = dataset.dtype.kind in "OS"
    return pa.array(dataset.asstr()[:] if is_text else dataset[:])


def _labelled(categories: pa.Array, codes: np.ndarray) -> pa.Array:
    """The category of each code; -1 is missing."""
    return categories.take(pa.array(codes.astype(np.int64), mask=codes < 0))


def _floats(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise TableError(".h5ad files need h5py: pip install 'daband[h5ad]'.") from None
    return h5py
