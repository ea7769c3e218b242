"""Our own JSON lines: a header line, then one decision per line.

`docs/log.schema.json` is the JSON Schema of both kinds of line.
"""

from collections.abc import Iterable
from typing import IO, Any

import msgspec
import numpy as np
from msgspec import Struct

from model import Domain
from service.formats.records import (
    LogFormatError,
    LoggedDecision,
    LogHeader,
    LogReader,
    Numbers,
    log_lines,
)
from service.records import CONTEXT_TYPE


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A decision as written; `arms` is absent if all declared arms were eligible.

    `propensity` is absent if it is unknown how the arm was chosen.
    """

    decision_id: str
    time: str | None = None
    domain: Domain = Domain.SOURCE
    policy_version: int = 0
    segment: str = ""
    arm: str
    propensity: float | None = None
    reward: float | None = None
    arms: tuple[str, ...] | None = None
    probabilities: Numbers | None = None
    context: Any
    extra: dict[str, Any] = {}


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(LogHeader).decode
_line = msgspec.json.Decoder(Line).decode


def read(file: IO[bytes], skip_bad: bool = False) -> LogReader:
    """A log from JSON lines."""
    lines = log_lines(file)
    try:
        header = _header(next(lines, b""))
    except (msgspec.DecodeError, RecursionError) as error:
        raise LogFormatError(f"line 1: not the header of a daband-log: {error}") from error
    return LogReader(header, lines, lambda text: _decision(text, header), skip_bad, first_number=2)


def write(file: IO[bytes], header: LogHeader, decisions: Iterable[LoggedDecision]) -> int:
    """Write a log; returns the number of decisions."""
    file.write(first_line(header))
    count = 0
    for decision in decisions:
        file.write(line(decision, header))
        count += 1
    return count


def first_line(header: LogHeader) -> bytes:
    """The header as a line."""
    return _encode(header) + b"\n"


def line(decision: LoggedDecision, header: LogHeader) -> bytes:
    """A decision as a line."""
    return _encode(_written(decision, header)) + b"\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of a line: the header or a decision."""
    (first, second), parts = msgspec.json.schema_components(
        (LogHeader, Line), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a daband log",
        "anyOf": [first, second],
        "$defs": parts,
    }


def _decision(text: bytes, header: LogHeader) -> LoggedDecision | None:
    if not text.strip():
        return None
    read = _line(text)
    fields = {name: getattr(read, name) for name in Line.__struct_fields__}
    fields["arms"] = header.arms if read.arms is None else read.arms
    fields["context"] = packed(read.context)
    return LoggedDecision(**fields)


def _written(decision: LoggedDecision, header: LogHeader) -> Line:
    fields = {name: getattr(decision, name) for name in LoggedDecision.__struct_fields__}
    fields["arms"] = None if decision.arms == header.arms else decision.arms
    shape = header.context_shape
    leading = (len(decision.arms),) if header.is_per_arm else ()
    fields["context"] = (
        np.frombuffer(decision.context, CONTEXT_TYPE).reshape(*leading, *shape).tolist()
    )
    return Line(**fields)


def packed(numbers: Any) -> bytes:
    """Nested lists of numbers as float32 bytes; ValueError if they are not finite numbers."""
    array = np.asarray(numbers)
    if array.dtype.kind not in "fiu":
        raise ValueError("context: not an array of numbers")
    with np.errstate(over="ignore"):
        single = array.astype(CONTEXT_TYPE)
    if not np.isfinite(single).all():
        raise ValueError("context: contains NaN, infinity or a value beyond float32")
    return single.tobytes()
