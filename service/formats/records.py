"""The records of all log formats."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from model import MAX_ARMS, ContextKind, Domain
from service.columns.schema import Column, TableSchema
from service.formats.rows.lines import LineTooLongError, lines_of
from service.images.schema import ImageSchema

Numbers = tuple[float, ...]


class LogHeader(Struct, frozen=True, kw_only=True, tag_field="format", tag="daband-log"):
    """The header of a log; `arms` is empty if decisions may have any arms.

    `columns` are those of the table that contexts are encoded from, if there is one. `resize` is there
    if contexts are images.
    """

    version: Literal[1] = 1
    arms: tuple[str, ...]
    context_kind: ContextKind
    context_shape: tuple[int, ...]
    columns: tuple[Column, ...] | UnsetType = UNSET
    resize: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.table is not None:
            self.table.check()
            if (self.table.width,) != self.context_shape:
                raise ValueError("columns: their slots are not those of the context's shape")
        _ = self.image  # or a ValueError

    @property
    def table(self) -> TableSchema | None:
        """The columns, where contexts are rows of a table."""
        return None if isinstance(self.columns, UnsetType) else TableSchema(self.columns)

    @property
    def image(self) -> ImageSchema | None:
        """How images are read, where contexts are images."""
        if isinstance(self.resize, UnsetType):
            return None
        return ImageSchema.of(self.context_shape, resize=self.resize)

    @property
    def is_per_arm(self) -> bool:
        return self.context_kind is ContextKind.PER_ARM

    @property
    def context_size(self) -> int:
        """How many numbers one context has."""
        return math.prod(self.context_shape)


class LoggedDecision(Struct, frozen=True, kw_only=True):
    """One decision with its reward, if it has one.

    `arms` are the eligible arms; `probabilities` are in their order, and None if the log has only the
    chosen arm's `propensity`. That is None if it is unknown how the arm was chosen. `context` is float32,
    little-endian, row-major: one context, or one for each arm in order. `extra` holds fields of a foreign format.
    """

    decision_id: str
    arms: tuple[str, ...]
    arm: str
    propensity: float | None
    probabilities: Numbers | None = None
    reward: float | None = None
    context: bytes
    domain: Domain = Domain.SOURCE
    policy_version: int = 0
    time: str | None = None
    segment: str = ""
    extra: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be read: its number, from 1, and the reason."""

    number: int
    reason: str


class LogFormatError(ValueError):
    """The file or one of its lines does not follow its format."""


@dataclass
class LogReader:
    """Reads a log: its header, then its decisions; bad lines are errors or are counted.

    `read` makes a decision of a line, or None of a line that has none.
    """

    header: LogHeader
    lines: Iterable[Any]
    read: Callable[[Any], LoggedDecision | None]
    skip_bad: bool
    first_number: int = 1  # of the lines
    bad_count: int = 0
    first_bad: list[BadLine] = field(default_factory=list)

    def __iter__(self) -> Iterator[LoggedDecision]:
        for number, line in enumerate(self.lines, self.first_number):
            try:
                found = self.read(line)
                if found is not None:
                    check(found, self.header)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self._note(BadLine(number, reason_of(error)))
            else:
                if found is not None:
                    yield found

    def _note(self, bad: BadLine) -> None:
        if not self.skip_bad:
            raise LogFormatError(f"line {bad.number}: {bad.reason}")
        self.bad_count += 1
        if len(self.first_bad) < 10:
            self.first_bad.append(bad)


def log_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a log without their ends; one that is too long is an error, whatever else is skipped."""
    try:
        yield from lines_of(file)
    except LineTooLongError as error:
        raise LogFormatError(str(error)) from None


def check(decision: LoggedDecision, header: LogHeader) -> None:
    """Refuse an invalid decision with a ValueError."""
    if len(decision.arms) > MAX_ARMS:
        raise ValueError(f"arms: there may be {MAX_ARMS:,}")
    if decision.arm not in decision.arms:
        raise ValueError("arm: the chosen arm is not among the eligible ones")
    if len(set(decision.arms)) != len(decision.arms):
        raise ValueError("arms: must be unique")
    if header.arms and not set(decision.arms) <= set(header.arms):
        raise ValueError("arms: an arm is not declared in the header")
    if decision.propensity is not None and not 0.0 < decision.propensity <= 1.0:
        raise ValueError("propensity: must lie in (0, 1]")
    if decision.reward is not None and not 0.0 <= decision.reward <= 1.0:
        raise ValueError("reward: must lie in [0, 1]")
    _check_probabilities(decision)
    contexts = len(decision.arms) if header.is_per_arm else 1
    if len(decision.context) != 4 * contexts * header.context_size:
        raise ValueError(f"context: expected {contexts} of shape {list(header.context_shape)}")


def _check_probabilities(decision: LoggedDecision) -> None:
    given = decision.probabilities
    if given is None:
        return
    if decision.propensity is None:
        raise ValueError("propensity: missing, though there are probabilities")
    if len(given) != len(decision.arms):
        raise ValueError("probabilities: there must be one for each eligible arm")
    if not all(0.0 <= each <= 1.0 for each in given) or abs(sum(given) - 1.0) > 1e-3:
        raise ValueError("probabilities: must lie in [0, 1] and sum to 1")


def reason_of(error: Exception) -> str:
    """The reason why a line could not be read, in one line and without its content."""
    if isinstance(error, msgspec.DecodeError):
        return f"invalid JSON: {error}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, KeyError):
        return f"{error.args[0]}: missing"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
