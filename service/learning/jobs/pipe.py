"""Messages over a pipe between two of our processes: a length, JSON that describes the arrays, their bytes.

Arrays are written from and read into their own memory without copies, because they may be most of a
process's memory. The GIL is free while the bytes move.
"""

import json
import struct
from typing import IO, Any

import numpy as np

from model import Message

_LENGTH = struct.Struct("<Q")
_LONGEST_TEXT = 1 << 26
_KINDS = "biuf"  # plain numbers only: received bytes are never executed


class PipeClosed(Exception):  # noqa: N818 - not an error
    """The other process is gone."""


def send(pipe: IO[bytes], message: Message) -> None:
    """Write a message; raises `PipeClosed` if the reader is gone."""
    layout = [(name, array.dtype.str, array.shape) for name, array in message.arrays.items()]
    text = json.dumps({"header": message.header, "arrays": layout}).encode()
    try:
        pipe.write(_LENGTH.pack(len(text)) + text)
        for array in message.arrays.values():
            pipe.write(_bytes_of(array))
        pipe.flush()
    except (BrokenPipeError, ValueError) as error:  # ValueError: our own end was closed
        raise PipeClosed(PipeClosed.__doc__) from error


def receive(pipe: IO[bytes]) -> Message:
    """Read a message; raises `PipeClosed` if the writer is gone."""
    (length,) = _LENGTH.unpack(_filled(pipe, bytearray(_LENGTH.size)))
    if length > _LONGEST_TEXT:
        raise ValueError("not a message")
    layout = json.loads(_filled(pipe, bytearray(length)))
    arrays = {name: _array(pipe, kind, shape) for name, kind, shape in layout["arrays"]}
    return Message(layout["header"], arrays)


def _array(pipe: IO[bytes], kind: str, shape: list[int]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in _KINDS:
        raise ValueError("an array does not contain numbers")
    array = np.empty(shape, dtype)
    _filled(pipe, _bytes_of(array))
    return array


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The array's bytes in C order, copied only if it is stored otherwise."""
    return array.reshape(-1).view(np.uint8).data


def _filled(pipe: IO[bytes], buffer: Any) -> Any:
    """Fill the buffer from the pipe."""
    view = memoryview(buffer)
    done = 0
    while done < len(view):
        try:
            count = pipe.readinto(view[done:])  # type: ignore[attr-defined]
        except ValueError as error:  # our own end was closed
            raise PipeClosed(PipeClosed.__doc__) from error
        if not count:
            raise PipeClosed(PipeClosed.__doc__)
        done += count
    return buffer
