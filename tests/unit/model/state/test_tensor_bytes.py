"""The format is that of the safetensors library, to the byte; what is malformed is refused."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from model.state.tensor_bytes import Arrays, joined, metadata_of, pieces_of, read

METADATA = {"header": json.dumps({"name": 'a "quoted" \\ text', "é": [1, 2]})}
ARRAYS: Arrays = {
    "b.weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a.weights": np.linspace(0.0, 1.0, 7),
    "counts": np.array([3, 1, 2], dtype=np.int64),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "flags": np.array([True, False]),
    "small": np.array([-1, 1], dtype=np.int8),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def written(arrays: Arrays) -> bytes:
    return joined(pieces_of(arrays, METADATA))


@pytest.mark.parametrize("count", range(len(ARRAYS) + 1))
def test_bytes_are_those_of_the_library(count: int):
    some = dict(list(ARRAYS.items())[:count])
    contiguous = {name: np.asarray(array, order="C") for name, array in some.items()}
    assert written(some) == save(contiguous, metadata=METADATA)


def test_arrays_come_back_as_the_library_reads_them():
    metadata, found = read(written(ARRAYS))
    assert metadata == metadata_of(written(ARRAYS)) == METADATA
    for name, array in load(written(ARRAYS)).items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert np.array_equal(found[name], array)
        assert found[name].flags.writeable


def headed(change: Any) -> bytes:
    """The bytes under a head that was changed."""
    content = written(ARRAYS)
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    change(head)
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


MALFORMED = {
    "hole": lambda head: head["counts"].update(data_offsets=[1, 25]),
    "overlap": lambda head: head["a.weights"].update(data_offsets=[0, 56]),
    "reversed": lambda head: head["counts"].update(data_offsets=[24, 0]),
    "missing": lambda head: head.pop("flags"),
    "shape": lambda head: head["counts"].update(shape=[4]),
    "negative": lambda head: head["counts"].update(shape=[-1, -3]),
    "type": lambda head: head["counts"].update(dtype="F80"),
    "entry": lambda head: head.update(counts=[1]),
    "metadata": lambda head: head.pop("__metadata__"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_heads_are_refused(name: str):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(headed(MALFORMED[name]))


@pytest.mark.parametrize("cut", [0, 4, 8, 40, -1])
def test_truncated_bytes_are_refused(cut: int):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(written(ARRAYS)[:cut])
