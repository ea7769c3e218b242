"""Messages over a pipe between two processes of ours: a length, JSON that names the arrays, their bytes.

The arrays are written from where they are and read to where they stay: no copy is made of what may
be most of a process's memory, and the interpreter's lock is free while the bytes move.
"""

import json
import struct
from typing import IO, Any

import numpy as np

from model import Message

_LENGTH = struct.Struct("<Q")
_LONGEST_TEXT = 1 << 26
_KINDS = "biuf"  # plain numbers: nothing that arrives is ever run


class PipeClosed(Exception):  # noqa: N818 - an event, not a fault
    """The other side is gone."""


def send(pipe: IO[bytes], message: Message) -> None:
    """Write a message; `PipeClosed` if nobody reads."""
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
    """Read a message; `PipeClosed` if nobody writes any more."""
    (length,) = _LENGTH.unpack(_filled(pipe, bytearray(_LENGTH.size)))
    if length > _LONGEST_TEXT:
        raise ValueError("this is no message")
    said = json.loads(_filled(pipe, bytearray(length)))
    arrays = {name: _array(pipe, kind, shape) for name, kind, shape in said["arrays"]}
    return Message(said["header"], arrays)


def _array(pipe: IO[bytes], kind: str, shape: list[int]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in _KINDS:
        raise ValueError("an array of something else than numbers")
    array = np.empty(shape, dtype)
    _filled(pipe, _bytes_of(array))
    return array


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """In C order: of an array that is stored otherwise, a copy's."""
    return array.reshape(-1).view(np.uint8).data


def _filled(pipe: IO[bytes], buffer: Any) -> Any:
    """The buffer, full."""
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
