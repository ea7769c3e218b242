"""Packs: many tasks in one compressed npz without loss, read with numpy alone.

An array that several tasks share is stored once. An array is stored as bytes or half floats where
that is exact, colour pictures as differences between neighbouring pixels (photographs compress
better so), and rows with few distinct values as those values and codes.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.task import ARRAYS, TransferTask

_MANIFEST = "manifest"
_FORMAT = "daband transfer tasks 1"
Array = NDArray[Any]


def write_pack(path: Path, tasks: Iterable[TransferTask]) -> None:
    """Write the tasks to one file."""
    stored: dict[str, Array] = {}
    entries = {task.name: _entry(task, stored) for task in tasks}
    manifest = json.dumps({"format": _FORMAT, "tasks": entries})
    np.savez_compressed(path, allow_pickle=False, **{_MANIFEST: np.array(manifest)}, **stored)


def packed_names(path: Path) -> tuple[str, ...]:
    """The tasks in a pack; none if the file is no pack."""
    return tuple(_manifest(path))


def read_packed(path: Path, name: str) -> TransferTask:
    """One task of a pack, equal to what was packed."""
    entry = _manifest(path)[name]
    with np.load(path, allow_pickle=False) as file:
        found: dict[str, Array] = {}
        for part, key in entry["arrays"].items():
            if key not in found:
                found[key] = _decoded(file, key)
            entry[part] = found[key]
    del entry["arrays"]
    return TransferTask(**{**entry, "arms": tuple(entry["arms"])})


def _manifest(path: Path) -> dict[str, dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        if _MANIFEST not in file:
            return {}
        manifest = json.loads(str(file[_MANIFEST]))
    return dict(manifest["tasks"]) if manifest.get("format") == _FORMAT else {}


def _entry(task: TransferTask, stored: dict[str, Array]) -> dict[str, Any]:
    arrays = {part: getattr(task, part) for part in ARRAYS if getattr(task, part) is not None}
    return {
        "name": task.name,
        "arms": task.arms,
        "exclusive_rewards": task.exclusive_rewards,
        "arrays": {part: _store(array, stored) for part, array in arrays.items()},
    }


def _store(array: Array, stored: dict[str, Array]) -> str:
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(array.tobytes())
    key = digest.hexdigest()[:16]
    if not any(name.startswith(f"{key}.") for name in stored):
        stored.update({f"{key}.{kind}": part for kind, part in _encoded(array).items()})
    return key


def _encoded(array: Array) -> dict[str, Array]:
    if array.dtype == np.uint8 and array.ndim == 3:
        return {"bytes": array}
    if array.dtype == np.uint8:
        return {"steps": np.diff(array, axis=2, prepend=np.uint8(0))}
    for kind in (np.uint8, np.float16):
        with np.errstate(all="ignore"):
            small = array.astype(kind)
        if np.array_equal(small.astype(np.float32), array):
            return {"plain": small}
    return _codes(array) or {"plain": array}


def _codes(array: Array) -> dict[str, Array] | None:
    """Distinct values row by row and their codes, if there are few enough to be worth it."""
    rows = [np.unique(row, return_inverse=True) for row in array]
    sizes = np.array([len(values) for values, _ in rows])
    if sizes.max() > 256 or sizes.mean() > array.shape[1] / 8:
        return None
    return {
        "codes": np.stack([codes for _, codes in rows]).astype(np.uint8),
        "sizes": sizes.astype(np.uint16),
        "values": np.concatenate([values for values, _ in rows]),
    }


def _decoded(file: np.lib.npyio.NpzFile, key: str) -> Array:
    if f"{key}.steps" in file:
        return np.asarray(np.cumsum(file[f"{key}.steps"], axis=2, dtype=np.uint8))
    if f"{key}.bytes" in file:
        return np.asarray(file[f"{key}.bytes"])
    if f"{key}.plain" in file:
        return np.asarray(file[f"{key}.plain"].astype(np.float32))
    sizes = file[f"{key}.sizes"].astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    return np.asarray(file[f"{key}.values"][starts[:, None] + file[f"{key}.codes"]])
