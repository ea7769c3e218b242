"""Arrays as bytes in the safetensors format, while other threads go on.

The library copies arrays under the interpreter's lock: a snapshot of 128 MB keeps every request
waiting for a quarter of a second. numpy and hashlib release the lock. The bytes are the library's.
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
# In the order in which the format's library writes them, by name within each.
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


def pieces_of(arrays: Arrays, metadata: dict[str, str]) -> Pieces:
    """The bytes in pieces: the head, then each array as it lies in memory."""
    named = sorted((_RANKS[_NAMES[each.dtype]], name) for name, each in arrays.items())
    head: dict[str, Any] = {_METADATA: metadata}
    pieces, end = [], 0
    for _, name in named:
        array = np.ascontiguousarray(arrays[name])
        start, end = end, end + array.nbytes
        head[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": [start, end],
        }
        pieces.append(array.reshape(-1).view(np.uint8))
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    front = len(text).to_bytes(_LENGTH_BYTES, "little") + text
    return [np.frombuffer(front, dtype=np.uint8), *pieces]


def joined(pieces: Iterable[NDArray[np.uint8]]) -> bytes:
    """The pieces one after the other, copied by numpy into the memory of the bytes themselves."""
    given = list(pieces)
    stream = io.BytesIO(bytes(sum(each.nbytes for each in given)))
    whole, end = np.frombuffer(stream.getbuffer(), dtype=np.uint8), 0
    for each in given:
        start, end = end, end + each.nbytes
        whole[start:end] = each
    del whole  # or the stream would have to copy
    return stream.getvalue()


def metadata_of(content: bytes | memoryview) -> dict[str, str]:
    """The metadata that stands in front."""
    return _head(memoryview(content))[0]


def read(content: bytes | memoryview) -> tuple[dict[str, str], Arrays]:
    """Metadata and arrays; ValueError for bytes that are not exactly those of some arrays."""
    view = memoryview(content)
    metadata, entries, data = _head(view)
    arrays, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start != end:
            raise ValueError(f"{name}: its bytes do not follow those before")
        arrays[name] = _array(data[start:stop], entry["dtype"], entry["shape"])
        end = stop
    if end != len(data):
        raise ValueError("bytes that belong to no array")
    return metadata, arrays


def _head(view: memoryview) -> tuple[dict[str, str], dict[str, Any], memoryview]:
    """Metadata, the entry of each array, and the arrays' bytes."""
    start = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    if start > len(view):
        raise ValueError("the head is not whole")
    entries = json.loads(bytes(view[_LENGTH_BYTES:start]))
    metadata: dict[str, str] = entries.pop(_METADATA)
    return metadata, entries, view[start:]


def _array(data: memoryview, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    kind = np.dtype(_TYPES[dtype])
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(data):
        raise ValueError("its bytes are not as many as its shape says")
    return np.frombuffer(data, dtype=kind).reshape(shape).copy()
