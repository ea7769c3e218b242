"""Contexts as callers have them, and as the service reads them.

| given | sent |
|---|---|
| a list of numbers | as it is |
| bytes | as they are: float32, little-endian, row-major |
| a numpy array, or anything with a buffer or `__array__` | float32 bytes |
| a DataFrame or Series of pandas, polars, … | float32 bytes, through Arrow |
| a path, an image of pillow, the bytes of a PNG or JPEG file | an image |
| a mapping with values that are contexts | a context for each arm |
| any other mapping, such as `{"age": 41, "strain": "B6"}` | as it is: one row of a table |
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daband_client import images
from daband_client.errors import ContextError
from daband_client.ids import new_id

Context = Any
FLOAT_BYTES = 4
BYTES = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Round:
    """A round to select for; an id of its own makes it safe to send again."""

    source: Context = None
    target: Context = None
    eligible_arms: Sequence[str] | None = None
    request_id: str | None = None

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """As the service reads it; `request_id` is for a round without its own."""
        found: dict[str, Any] = {"request_id": self.request_id or request_id or new_id()}
        for name, given in (("source", self.source), ("target", self.target)):
            if given is not None:
                found[name] = _side(given)
        if self.eligible_arms is not None:
            found["eligible_arms"] = list(self.eligible_arms)
        return found


def as_round(given: object) -> Round:
    """A round as it is given; a bare context is refused."""
    if isinstance(given, Round):
        return given
    raise ContextError(
        f"a {_kind(given)} is no round: write Round(source=…), Round(target=…) or both"
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    """Contexts as float32 numbers: `count` of them, of `row_bytes` each; `read` gives a range."""

    count: int
    row_bytes: int
    read: Callable[[int, int], bytes] = field(repr=False)


def one(context: Context) -> Any:
    """One context as it is sent in a body of msgpack: bytes, a list or a mapping."""
    if isinstance(context, Mapping):
        is_whole = is_row(context) or images.is_image_body(context)
        return context if is_whole else {arm: one(each) for arm, each in context.items()}
    if images.is_image(context):
        return images.Image(context)
    if isinstance(context, list | tuple | BYTES):
        return context
    found = matrix(context)
    return found.read(0, found.count)


def many(contexts: Any) -> Matrix | list[Any]:
    """Many contexts: a matrix, or a list; a single context is a list of one.

    What has one axis (a Series, a list of numbers) is a single context, as is a mapping.
    """
    if isinstance(contexts, Path):
        return [one(each) for each in images.files(contexts)]
    if isinstance(contexts, Mapping) or images.is_image(contexts):
        return [one(contexts)]
    if isinstance(contexts, BYTES):
        return Matrix(1, len(contexts), lambda _start, _stop: bytes(contexts))
    if isinstance(contexts, Iterable) and not _is_numeric(contexts):
        found = list(contexts)
        is_single = bool(found) and isinstance(found[0], int | float)
        return [found] if is_single else [_listed(each) for each in found]
    return matrix(contexts)


def is_row(given: Mapping[Any, Any]) -> bool:
    """Whether a mapping is one row of a table, by column, and not a context for each arm."""
    return not any(map(images.is_image, given.values())) and all(
        isinstance(each, str) or not hasattr(each, "__len__") for each in given.values()
    )


def matrix(given: Any) -> Matrix:
    """Anything numeric as float32; the first axis counts contexts unless it is the only one."""
    if hasattr(given, "__arrow_c_stream__") and (arrow := installed("pyarrow")) is not None:
        try:
            return _from_arrow(given, arrow)
        except arrow.ArrowException as error:
            raise ContextError(f"a {_kind(given)} is no context: {error}") from error
    if (numpy := installed("numpy")) is not None:
        return _from_numpy(given, numpy)
    if hasattr(given, "__arrow_c_stream__"):
        raise ContextError(f"a {_kind(given)} can be sent when pyarrow is installed")
    try:
        return _from_buffer(memoryview(given))
    except TypeError:
        raise ContextError(
            f"a {_kind(given)} is no context: give a list of numbers, float32 bytes, a buffer of "
            "numbers, or install numpy for arrays and pyarrow for data frames"
        ) from None


def _side(given: Context) -> dict[str, Any]:
    is_by_arm = isinstance(given, Mapping) and not (is_row(given) or images.is_image_body(given))
    return {"contexts" if is_by_arm else "context": one(given)}


def _is_numeric(given: Any) -> bool:
    """Whether `matrix` takes it as a whole."""
    if any(hasattr(given, name) for name in ("__arrow_c_stream__", "__array__")):
        return True
    return isinstance(given, memoryview | array)


def _listed(context: Context) -> Any:
    """A context inside a list of them, which has no place for bytes unless they are an arm's."""
    found = one(context)
    if not isinstance(found, BYTES):
        return found
    numbers = array("f", found)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _from_numpy(given: Any, numpy: Any) -> Matrix:
    found = numpy.asarray(given)
    if found.dtype.kind not in "fiub":
        raise ContextError(f"a {_kind(given)} of {found.dtype} is no context: numbers are needed")
    count = len(found) if found.ndim > 1 else 1

    def read(start: int, stop: int) -> bytes:
        rows = found[start:stop] if found.ndim > 1 else found
        with numpy.errstate(over="ignore"):  # the service refuses what float32 cannot hold
            return bytes(numpy.ascontiguousarray(rows, dtype="<f4").tobytes())

    return Matrix(count, FLOAT_BYTES * found.size // max(count, 1), read)


def _from_arrow(given: Any, arrow: Any) -> Matrix:
    if not hasattr(given, "columns"):  # a Series
        content = _float32(arrow.chunked_array(given), "the Series", arrow)
        return Matrix(1, len(content), lambda _start, _stop: content)
    table = arrow.table(given)
    # pandas appends its index as further columns.
    width = len(given.columns)
    numbers = array("f", bytes(FLOAT_BYTES * table.num_rows * width))
    for place, (name, column) in enumerate(
        zip(table.column_names[:width], table.columns[:width], strict=True)
    ):
        numbers[place::width] = array("f", _float32(column, f"column {name!r}", arrow))
    content, row_bytes = numbers.tobytes(), FLOAT_BYTES * width
    return Matrix(
        table.num_rows,
        row_bytes,
        lambda start, stop: content[start * row_bytes : stop * row_bytes],
    )


def _float32(column: Any, name: str, arrow: Any) -> bytes:
    """The numbers of a column; refuses what is missing and what is no number."""
    types, kind = arrow.types, column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ContextError(f"{name} is of type {kind}: only numbers can be sent")
    if column.null_count:
        raise ContextError(f"{name} has {column.null_count} missing values: fill or drop them")
    found = column.cast(arrow.float32(), safe=False).combine_chunks()
    start = FLOAT_BYTES * found.offset
    return bytes(memoryview(found.buffers()[1])[start : start + FLOAT_BYTES * len(found)])


def _from_buffer(view: memoryview) -> Matrix:
    count = view.shape[0] if view.ndim > 1 and view.shape else 1
    content = array("f", _flat(view.tolist())).tobytes()
    row_bytes = len(content) // max(count, 1)
    return Matrix(
        count, row_bytes, lambda start, stop: content[start * row_bytes : stop * row_bytes]
    )


def _flat(given: Any) -> Iterable[float]:
    if not isinstance(given, list):
        yield given
        return
    for each in given:
        yield from _flat(each)


def installed(name: str) -> Any:
    """An optional package; none where it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def _kind(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
