"""Tensors of the Open Inference Protocol: JSON lists, or bytes behind the JSON of a request.

A text tensor (`BYTES`) is an array of objects here: text from JSON, bytes from binary data.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta, Raw, Struct

from service.codec.bodies import ABSENT, MediaType, decode, nested
from service.errors import refuse

TEXT = "BYTES"
KINDS: Mapping[str, str] = {
    "BOOL": "?",
    **{f"INT{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": f"<f{size}" for size in (2, 4, 8)},
}
NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}
_LENGTH = struct.Struct("<I")  # before each element of a text tensor

Size = Annotated[int, Meta(ge=0, le=1 << 31)]


class TensorParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """`content_type` is a hint that some clients add."""

    binary_data_size: Size | None = None
    content_type: str | None = None


class TensorBody(Struct, forbid_unknown_fields=True):
    """One named input."""

    name: str
    shape: Annotated[list[Size], Meta(min_length=1, max_length=8)]
    datatype: str
    parameters: TensorParameters = TensorParameters()
    data: Raw = ABSENT


class Tensor(NamedTuple):
    """A named array."""

    name: str
    values: np.ndarray


def tensors_of(bodies: list[TensorBody], binary: bytes) -> list[Tensor]:
    """The inputs of a request; `binary` is all that follows its JSON."""
    found: list[Tensor] = []
    start = 0
    for place, body in enumerate(bodies):
        pointer = f"#/inputs/{place}"
        size = body.parameters.binary_data_size
        if body.datatype != TEXT and body.datatype not in KINDS:
            refuse(f"Must be one of {', '.join((TEXT, *KINDS))}.", f"{pointer}/datatype")
        if (size is None) is (body.data is ABSENT):
            refuse("Send either `data` or `binary_data_size`.", pointer)
        if size is None:
            values = _of_json(body, f"{pointer}/data")
        else:
            values = _of_bytes(body.datatype, binary[start : start + size], size, pointer)
            start += size
        if values.size != math.prod(body.shape):
            refuse(f"The data has {values.size} elements, not as `shape` says.", pointer)
        found.append(Tensor(body.name, values.reshape(body.shape)))
    if start != len(binary):
        refuse("The `binary_data_size` of all inputs must add up to the bytes after the JSON.")
    return found


def _of_json(body: TensorBody, pointer: str) -> np.ndarray:
    """Values, flat or nested as `shape` says; null is a missing number or text."""
    content = bytes(body.data)
    is_nested = content[1:].lstrip().startswith(b"[")
    kind = nested(_element(body.datatype), len(body.shape) if is_nested else 1)
    values = decode(content, kind, MediaType.JSON, pointer)
    try:
        with np.errstate(over="ignore"):  # what is too large is refused as not finite
            return np.array(values, dtype=KINDS.get(body.datatype, "O")).reshape(-1)
    except (ValueError, OverflowError):
        refuse(f"Expected {body.datatype} values of one shape.", pointer)


def _element(datatype: str) -> Any:
    if datatype == TEXT:
        return str | None
    if datatype == "BOOL":
        return bool
    return float | None if datatype.startswith("FP") else int


def _of_bytes(datatype: str, content: bytes, size: int, pointer: str) -> np.ndarray:
    if len(content) != size:
        refuse("The body ends before the tensor does.", pointer)
    if datatype == TEXT:
        found = list(_elements(content, pointer))
        values = np.empty(len(found), dtype=object)
        values[:] = found
        return values
    kind = np.dtype(KINDS[datatype])
    if size % kind.itemsize:
        refuse(f"Expected a multiple of {kind.itemsize} bytes.", pointer)
    return np.frombuffer(content, kind)


def _elements(content: bytes, pointer: str) -> Iterator[bytes]:
    place = 0
    while place < len(content):
        start = place + _LENGTH.size
        if start > len(content):
            refuse("An element ends in its length.", pointer)
        (size,) = _LENGTH.unpack_from(content, place)
        place = start + size
        if place > len(content):
            refuse("An element is longer than the tensor.", pointer)
        yield content[start:place]


def texts_of(tensor: Tensor) -> list[str | None]:
    """The elements of a text tensor as text."""
    try:
        return [each.decode() if isinstance(each, bytes) else each for each in tensor.values.flat]
    except UnicodeDecodeError:
        refuse(f"Input `{tensor.name}` must be UTF-8.", "#/inputs")


def datatype_of(values: np.ndarray) -> str:
    """The protocol's name of an array's type."""
    return TEXT if values.dtype == object else NAMES[values.dtype]


def bytes_of(values: np.ndarray) -> bytes:
    """An array as binary data."""
    if values.dtype != object:
        return np.ascontiguousarray(values).tobytes()
    texts = [str(each).encode() for each in values.flat]
    return b"".join([_LENGTH.pack(len(each)) + each for each in texts])
