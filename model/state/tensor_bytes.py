"""Arrays as bytes in the safetensors format, without blocking other threads.

The safetensors library copies arrays under the GIL, which blocks all requests for a quarter of a second
for a snapshot of 128 MB. numpy and hashlib release the GIL. The bytes are the same.
"""

import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Pieces = list[NDArray[np.uint8]]

_LENGTH_BYTES = 8
_ALIGNMENT = 8
_METADATA = "__metadata__"
# In the order in which the safetensors library writes types; within a type, arrays are sorted by name.
_TYPES: dict[str, type[np.generic]] = {
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
    "F32": np.float32,
    "U32": np.uint32,
    "I32": np.int32,
    "F16": np.float16,
    "U16": np.uint16,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_RANKS = {name: rank for rank, name in enumerate(_TYPES)}


class SnapshotError(ValueError):
    """A snapshot that must not be used, for the reason in the message."""


def pieces_of(arrays: Arrays, metadata: dict[str, str]) -> Pieces:
    """The bytes in pieces: the header, then the memory of each array."""
    named = sorted((_RANKS[_NAMES[each.dtype]], name) for name, each in arrays.items())
    header: dict[str, Any] = {_METADATA: metadata}
    pieces, end = [], 0
    for _, name in named:
        array = np.ascontiguousarray(arrays[name])
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [start, end],
        }
        pieces.append(array.reshape(-1).view(np.uint8))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    prefix = len(text).to_bytes(_LENGTH_BYTES, "little") + text
    return [np.frombuffer(prefix, dtype=np.uint8), *pieces]


def joined(pieces: Iterable[NDArray[np.uint8]]) -> bytes:
    """The pieces joined; numpy copies each once, into the memory of the result."""
    given = list(pieces)
    stream = io.BytesIO(bytes(sum(each.nbytes for each in given)))
    whole, end = np.frombuffer(stream.getbuffer(), dtype=np.uint8), 0
    for each in given:
        start, end = end, end + each.nbytes
        whole[start:end] = each
    del whole  # with a view left, `getvalue` would copy
    return stream.getvalue()


def metadata_of(content: bytes | memoryview) -> dict[str, str]:
    """The metadata in the header."""
    return _header(memoryview(content))[0]


def read(content: bytes | memoryview) -> tuple[dict[str, str], Arrays]:
    """Metadata and arrays; ValueError for bytes that are not a complete file."""
    metadata, entries, data = _header(memoryview(content))
    arrays, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start != end:
            raise ValueError(f"{name}: its bytes do not follow the previous array's")
        arrays[name] = _array(data[start:stop], entry["dtype"], entry["shape"])
        end = stop
    if end != len(data):
        raise ValueError("extra bytes after the last array")
    return metadata, arrays


def _header(view: memoryview) -> tuple[dict[str, str], dict[str, Any], memoryview]:
    """Metadata, the entry of each array, and the arrays' bytes."""
    start = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    if start > len(view):
        raise ValueError("the header is incomplete")
    entries = json.loads(bytes(view[_LENGTH_BYTES:start]))
    metadata: dict[str, str] = entries.pop(_METADATA)
    return metadata, entries, view[start:]


def _array(data: memoryview, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    kind = np.dtype(_TYPES[dtype])
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(data):
        raise ValueError("the number of bytes does not match the shape")
    return np.frombuffer(data, dtype=kind).reshape(shape).copy()
