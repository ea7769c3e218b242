"""Refusals of bad input that say where, in JSON-pointer form, and never what was sent."""

from typing import NoReturn

from service.errors import InvalidRequest

MAX_ID_BYTES = 128


def refuse(detail: str, pointer: str = "#") -> NoReturn:
    """Raise `InvalidRequest` for one place of the request."""
    raise InvalidRequest(errors=[{"detail": detail, "pointer": pointer}])


def refuse_numbers(shape: tuple[int, ...], pointer: str = "#") -> NoReturn:
    """Refuse what should be a context of this shape, or contexts."""
    refuse(f"Expected finite float32 numbers of shape {list(shape)}.", pointer)


def check_identifier(value: str, pointer: str) -> str:
    """The id as it is: opaque text, compared byte for byte, that every database can hold."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse("An id must be valid Unicode, without lone surrogates.", pointer)
    if not 1 <= size <= MAX_ID_BYTES:
        refuse(f"An id has 1 to {MAX_ID_BYTES} bytes.", pointer)
    if "\0" in value:
        refuse("An id must not hold the character NUL.", pointer)
    return value
