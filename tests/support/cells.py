"""Files of cells in the layout that anndata documents, written by h5py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

TEXT = h5py.string_dtype()


def write_cells(
    path: Path,
    values: np.ndarray,
    genes: Sequence[str],
    obs: Mapping[str, Any] | None = None,
    layout: str = "array",
) -> Path:
    """Cells (n, genes) with columns of `obs`; `layout` is array, csr_matrix or csc_matrix."""
    with h5py.File(path, "w") as file:
        encoded(file, "anndata", "0.1.0")
        write_matrix(file, "X", values, layout)
        index = [f"cell{number}" for number in range(len(values))]
        write_frame(file.create_group("obs"), index, obs or {})
        write_frame(file.create_group("var"), genes, {})
    return path


def write_matrix(file: h5py.File, name: str, values: np.ndarray, layout: str) -> None:
    if layout == "array":
        encoded(file.create_dataset(name, data=values), "array", "0.2.0")
        return
    group = file.create_group(name)
    encoded(group, layout, "0.1.0")
    group.attrs["shape"] = np.array(values.shape)
    by_lines = values if layout == "csr_matrix" else values.T
    lines, places = np.nonzero(by_lines)
    group.create_dataset("data", data=by_lines[lines, places])
    group.create_dataset("indices", data=places.astype(np.int32))
    ends = np.cumsum([0, *(by_lines != 0).sum(axis=1)])
    group.create_dataset("indptr", data=ends.astype(np.int32))


def write_frame(group: h5py.Group, index: Sequence[str], columns: Mapping[str, Any]) -> None:
    encoded(group, "dataframe", "0.2.0")
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = np.array(list(columns), dtype=TEXT)
    group.create_dataset("_index", data=np.array(index, dtype=object), dtype=TEXT)
    for name, values in columns.items():
        write_column(group, name, values)


def write_column(group: h5py.Group, name: str, values: Any) -> None:
    """Texts are categories, None is missing; a list of None and numbers has a mask."""
    if isinstance(values, np.ndarray):
        encoded(group.create_dataset(name, data=values), "array", "0.2.0")
        return
    made = group.create_group(name)
    known = [each for each in values if each is not None]
    if isinstance(known[0], str):
        levels = sorted(set(known))
        codes = [-1 if each is None else levels.index(each) for each in values]
        encoded(made, "categorical", "0.2.0")
        made.attrs["ordered"] = False
        made.create_dataset("codes", data=np.array(codes, dtype=np.int8))
        made.create_dataset("categories", data=np.array(levels, dtype=object), dtype=TEXT)
        return
    encoded(made, "nullable-integer", "0.1.0")
    made.create_dataset("values", data=np.array([each or 0 for each in values]))
    made.create_dataset("mask", data=np.array([each is None for each in values]))


def encoded(place: Any, kind: str, version: str) -> None:
    place.attrs["encoding-type"] = kind
    place.attrs["encoding-version"] = version
