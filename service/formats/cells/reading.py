"""An .h5ad file as anndata lays it out: the matrix `X` by rows, columns of `obs`, names of `var`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.columns.schema import TableError, absent_column
from service.limits import MEBIBYTE
from service.unpacking import MAX_CELLS, MAX_PIECE_BYTES, MAX_UNPACKED_BYTES, rows_at_once

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
                self.genes: list[str] = self._texts(self._item("var"), self._index("var"))
                self.obs_names = [self._index("obs"), *self._columns("obs")]
                self.cells = len(self._item("obs", self._index("obs")))
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
            return self._values(self._item("obs"), name)

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
        matrix, step = self._item("X"), self._step
        for start in range(0, self.cells, step):
            rows = matrix[start : start + step].astype(np.float64)
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
        ends = self._held(self._item("X", "indptr")).astype(np.int64)
        indices, data = self._item("X", "indices"), self._item("X", "data")
        for start in range(0, self.cells, self._step):
            stop = min(start + self._step, self.cells)
            if not 0 <= ends[stop] - ends[start] <= (stop - start) * len(self.genes):
                raise TableError(f"{self.path.name}: X has more values than cells and genes.")
            rows = np.repeat(np.arange(stop - start), np.diff(ends[start : stop + 1]))
            part = slice(ends[start], ends[stop])
            yield (
                stop - start,
                (rows, indices[part].astype(np.int64), _floats(data[part])),
            )

    def _by_column(self) -> Iterator[tuple[int, _Triplets]]:
        """The same of a matrix that lies by columns: all that is not 0 is held in memory."""
        ends = self._held(self._item("X", "indptr")).astype(np.int64)
        rows = self._held(self._item("X", "indices")).astype(np.int32)
        order = np.argsort(rows, kind="stable")
        columns = np.repeat(np.arange(len(self.genes), dtype=np.int32), np.diff(ends))[order]
        values, rows = self._held(self._item("X", "data"))[order], rows[order]
        for start in range(0, self.cells, self._step):
            stop = min(start + self._step, self.cells)
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
        attributes = self._item("X").attrs
        name = attributes.get(_ENCODING, attributes.get(_OLD_ENCODING, "array"))
        if name != "array" and name not in _SPARSE:
            raise TableError(f"{self.path.name}: X is a {name}; expected an array, CSR or CSC.")
        return _SPARSE.get(name)

    def _check_shape(self) -> None:
        matrix = self._item("X")
        shape = matrix.attrs.get("shape", matrix.attrs.get(_OLD_SHAPE))
        found = tuple(matrix.shape if shape is None else map(int, shape))
        if found != (self.cells, len(self.genes)):
            raise TableError(f"{self.path.name}: X has another shape than obs and var.")

    def _index(self, frame: str) -> str:
        return str(self._item(frame).attrs[_INDEX])

    def _columns(self, frame: str) -> list[str]:
        group = self._item(frame)
        return [str(each) for each in group.attrs.get("column-order", ()) if each in group]

    def _texts(self, group: Any, name: str) -> list[str]:
        found: list[str] = self._values(group, name).cast(pa.string()).to_pylist()
        return found

    def _values(self, group: Any, name: str) -> pa.Array:
        found = self._part(group, name)
        if hasattr(found, "keys"):  # a group: categories, or values with a mask
            if "codes" in found:
                codes = self._held(self._part(found, "codes"))
                return _labelled(self._values(found, "categories"), codes)
            values = self._values(found, "values")
            mask = self._held(self._part(found, "mask"))
            return pa.array(values.to_pylist(), values.type, mask=mask)
        if "categories" in found.attrs:  # as before anndata 0.8: a reference to the categories
            categories = self._file[found.attrs["categories"]]
            return _labelled(self._plain(categories), self._held(found))
        return self._plain(found)

    @property
    def _step(self) -> int:
        """How many rows of the matrix are read at once."""
        return rows_at_once(ROWS, len(self.genes))

    def _item(self, *path: str) -> Any:
        """A group or a dataset of the file itself."""
        found = self._file
        for name in path:
            found = self._part(found, name)
        return found

    def _part(self, group: Any, name: str) -> Any:
        """A member of a group; one that lies in another file is not read."""
        h5py = _h5py()
        if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
            raise TableError(f"{self.path.name}: `{name}` lies in another file.")
        found = group[name]
        if isinstance(found, h5py.Dataset):
            chunk = math.prod(found.chunks or ()) * found.dtype.itemsize
            if found.is_virtual or found.external or chunk > MAX_PIECE_BYTES:
                raise TableError(
                    f"{self.path.name}: `{name}` lies in other files, or in chunks of more than "
                    f"{MAX_PIECE_BYTES // MEBIBYTE} MiB. Write it again as one file."
                )
        return found

    def _held(self, dataset: Any) -> np.ndarray:
        """All values of a dataset, if they fit."""
        if dataset.size * dataset.dtype.itemsize > MAX_UNPACKED_BYTES:
            raise TableError(
                f"{self.path.name}: a column has at most {MAX_UNPACKED_BYTES >> 30} GiB unpacked."
            )
        found: np.ndarray = dataset[:]
        return found

    def _plain(self, dataset: Any) -> pa.Array:
        if dataset.dtype.kind in "OS":
            self._check_texts(dataset)
            return pa.array(dataset.asstr()[:])
        return pa.array(self._held(dataset))

    def _check_texts(self, dataset: Any) -> None:
        """Texts alone are objects of a file; references and sequences are not read."""
        if _h5py().check_string_dtype(dataset.dtype) is None or dataset.size > MAX_CELLS:
            raise TableError(f"{self.path.name} is no readable .h5ad file.")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (TableError, FileNotFoundError, PermissionError):
            raise
        except (OSError, KeyError, ValueError, TypeError, IndexError, RuntimeError):
            # h5py's messages name offsets in the file, and no place that a person knows.
            raise TableError(f"{self.path.name} is no readable .h5ad file.") from None


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
