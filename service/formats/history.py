"""Past rounds out of a table: the whole file is checked and spooled to disk before the first is used."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from model import Floats
from service.columns.schema import Column, ColumnType, TableError, TableSchema
from service.formats.image_tables import image_rows
from service.formats.tables import TableFile
from service.images.named import NamedImages
from service.images.schema import ImageSchema
from service.records import CONTEXT_TYPE, UNIT, RewardRange
from service.unpacking import MAX_ROWS, MAX_SPOOLED_BYTES

ROWS = 4096  # read at once
MEMORY_BYTES = 8 << 20  # of spooled rows; the rest is on disk
PART_ROWS, PART_BYTES = 256, 1 << 20  # of rounds that are written at once
MAX_TEXT = 128
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """Which columns are no context: the arm, the reward and what else is known of a round."""

    arm: str
    reward: str
    time: str | None = None
    propensity: str | None = None
    id: str | None = None
    ignore: tuple[str, ...] = ()
    image: str | None = None  # the file's name, where contexts are images

    @property
    def apart(self) -> list[str]:
        """The columns with a meaning of their own."""
        named = (self.arm, self.reward, self.time, self.propensity, self.id, self.image)
        return [each for each in named if each is not None]

    def check(self, file: TableFile) -> None:
        """Refuse names that the file does not have, and a name with two meanings."""
        file.require(*self.apart, *self.ignore)
        for name in self.apart:
            if self.apart.count(name) > 1:
                raise TableError(f"Column `{name}` cannot be two things at once.", name)


class PastRound(Struct, frozen=True, gc=False, array_like=True):
    """One round; None stands for what is unknown. The reward is scaled to [0, 1]."""

    arm: str
    reward: float | None
    propensity: float | None
    time: str | None
    row_id: str | None
    context: bytes


@dataclass(frozen=True, slots=True)
class HistoryShape:
    """What an experiment takes: its arms, the columns or the size of its contexts, its rewards' range."""

    arms: Sequence[str]
    table: TableSchema | None
    width: int
    reward_range: RewardRange | None = None
    image: ImageSchema | None = None

    def schema(self, names: Sequence[str]) -> TableSchema:
        """The columns of a context; those of a vector are the file's, in their order."""
        if self.table is not None:
            return self.table
        if len(names) != self.width:
            raise TableError(
                f"A context has {self.width} numbers; there are {len(names)} columns for it."
            )
        return TableSchema(tuple(Column(name, ColumnType.NUMERIC) for name in names))


@dataclass
class HistorySpool(AbstractContextManager["HistorySpool"]):
    """Checked rounds in a temporary file, in the order of their times or of the file."""

    rows: int = 0
    rewarded: int = 0
    with_propensity: int = 0
    _file: IO[bytes] = field(
        default_factory=lambda: SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - closed on exit
    )
    _starts: "array[int]" = field(default_factory=lambda: array("q"))
    _moments: "array[float]" = field(default_factory=lambda: array("d"))

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, round_: PastRound, moment: float) -> None:
        """Add a round; `moment` orders it."""
        if self.rows == MAX_ROWS:
            raise TableError(f"A history has at most {MAX_ROWS} rows; send it in parts.")
        self._starts.append(self._file.tell())
        self._moments.append(moment)
        content = msgspec.msgpack.encode(round_)
        if self._file.tell() + len(content) > MAX_SPOOLED_BYTES:
            raise TableError(
                f"The contexts of a history have at most {MAX_SPOOLED_BYTES >> 30} GiB as float32; "
                "send it in parts."
            )
        self._file.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
        self.rows += 1
        self.rewarded += round_.reward is not None
        self.with_propensity += round_.propensity is not None

    def digest(self) -> str:
        """A digest of the rounds, whatever the file's format was."""
        found = hashlib.sha256()
        for content in self._contents():
            found.update(content)
        return found.hexdigest()

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """The rounds in runs of bounded size, each with the row that it begins at."""
        some: list[bytes] = []
        first_row = size = 0
        for content in self._contents():
            if some and (len(some) == PART_ROWS or size + len(content) > PART_BYTES):
                yield first_row, b"".join(some)
                first_row, some, size = first_row + len(some), [], 0
            some.append(content)
            size += len(content)
        if some:
            yield first_row, b"".join(some)

    def _contents(self) -> Iterator[bytes]:
        order = np.argsort(np.array(self._moments), kind="stable")
        for row in order.tolist():
            self._file.seek(self._starts[row])
            length = self._file.read(_LENGTH_BYTES)
            yield length + self._file.read(int.from_bytes(length, "little"))


def rounds_of(part: bytes) -> Iterator[PastRound]:
    """The rounds of a part."""
    decode, start = msgspec.msgpack.Decoder(PastRound).decode, 0
    while start < len(part):
        begin = start + _LENGTH_BYTES
        start = begin + int.from_bytes(part[start:begin], "little")
        yield decode(part[begin:start])


def spooled(
    file: TableFile, columns: HistoryColumns, shape: HistoryShape, images: NamedImages | None = None
) -> HistorySpool:
    """All rounds of a file; `TableError` names the row and the column that do not fit."""
    columns.check(file)
    reader = _Reader(file, columns, shape)
    encoded = _encoded(file, columns, shape, images)
    with ExitStack() as on_error:
        spool = on_error.enter_context(HistorySpool())
        first_row = 0
        for table, contexts in encoded:
            for round_, moment in reader.rounds(table, contexts, first_row):
                spool.add(round_, moment)
            first_row += table.num_rows
        if not spool.rows:
            raise TableError(f"{file.name} has no rows.")
        on_error.pop_all()
    return spool


def _encoded(
    file: TableFile, columns: HistoryColumns, shape: HistoryShape, images: NamedImages | None
) -> Iterator[tuple[pa.Table, Floats]]:
    """The columns set apart and the contexts of some rows at a time."""
    if shape.image is not None and columns.image is not None and images is not None:
        named = (columns.image, columns.apart, columns.ignore)
        return image_rows(file, images, shape.image, *named)
    if shape.image is not None:
        raise TableError("Past rounds of images need `image`, the column with their files' names.")
    if columns.image is not None:
        raise TableError("The experiment takes no images.", columns.image)
    names = [name for name in file.names if name not in {*columns.apart, *columns.ignore}]
    return file.encoded(shape.schema(names), ROWS, columns.apart, columns.ignore)


class _Reader:
    """Reads the columns that are no context."""

    def __init__(self, file: TableFile, columns: HistoryColumns, shape: HistoryShape) -> None:
        self._file = file
        self._columns = columns
        self._arms = frozenset(shape.arms)
        self._range = shape.reward_range or UNIT
        self._has_range = shape.reward_range is not None
        self._times = Moments(columns.time)

    def rounds(
        self, table: pa.Table, contexts: Floats, first_row: int
    ) -> Iterator[tuple[PastRound, float]]:
        """The rounds of some rows, each with what orders it."""
        count, columns = table.num_rows, self._columns
        arms = self._arm_names(table, first_row)
        rewards = self._rewards(table, first_row)
        propensities = self._propensities(table, first_row)
        times = self._texts(table, columns.time, first_row)
        ids = self._texts(table, columns.id or columns.image, first_row)
        content = np.ascontiguousarray(contexts, dtype=CONTEXT_TYPE)
        for row in range(count):
            moment = self._times.moment(times[row], first_row + row)
            known = (arms[row], rewards[row], propensities[row], times[row], ids[row])
            yield PastRound(*known, content[row].tobytes()), moment

    def _arm_names(self, table: pa.Table, first_row: int) -> list[str]:
        name = self._columns.arm
        found: list[str] = []
        for row, arm in enumerate(self._file.texts(table, name, first_row), first_row):
            if arm is None:
                raise TableError(f"Column `{name}` may not be missing.", name, row)
            if arm not in self._arms:
                raise TableError(f"Column `{name}` names an arm that is not declared.", name, row)
            found.append(arm)
        return found

    def _rewards(self, table: pa.Table, first_row: int) -> list[float | None]:
        name, (low, high) = self._columns.reward, self._range
        values = self._file.rewards(table, name, first_row)
        with np.errstate(invalid="ignore"):
            is_bad = (values < low) | (values > high)
        if is_bad.any():
            hint = "" if self._has_range else "; declare the experiment's `reward_range`"
            detail = f"Column `{name}` must lie between {low:g} and {high:g}{hint}."
            raise TableError(detail, name, first_row + int(np.argmax(is_bad)))
        return _known(np.clip((values - low) / (high - low), 0.0, 1.0))

    def _propensities(self, table: pa.Table, first_row: int) -> list[float | None]:
        name = self._columns.propensity
        if name is None:
            return [None] * table.num_rows
        values = self._file.numbers(table, name, first_row)
        with np.errstate(invalid="ignore"):
            is_bad = (values <= 0) | (values > 1)
        if is_bad.any():
            row = first_row + int(np.argmax(is_bad))
            raise TableError(f"Column `{name}` must lie above 0 and be at most 1.", name, row)
        return _known(values)

    def _texts(self, table: pa.Table, name: str | None, first_row: int) -> list[str | None]:
        if name is None:
            return [None] * table.num_rows
        found = self._file.texts(table, name, first_row)
        for row, text in enumerate(found, first_row):
            if text is not None and len(text.encode()) > MAX_TEXT:
                raise TableError(f"Column `{name}` has at most {MAX_TEXT} bytes.", name, row)
        return found


def _known(values: np.ndarray) -> list[float | None]:
    return [None if each != each else each for each in values.tolist()]


class Moments:
    """What orders rounds: their times, all numbers or all ISO 8601; without any, the file's order."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._is_numeric: bool | None = None

    def moment(self, text: str | None, row: int) -> float:
        """A number that grows with time."""
        if self._column is None:
            return 0.0
        if text is None:
            raise TableError(f"Column `{self._column}` may not be missing.", self._column, row)
        found, is_numeric = _parsed(text)
        if found is None or (self._is_numeric is not None and is_numeric != self._is_numeric):
            raise TableError(
                f"Column `{self._column}` takes times: all numbers, or all ISO 8601.",
                self._column,
                row,
            )
        self._is_numeric = is_numeric
        return found


def _parsed(text: str) -> tuple[float | None, bool]:
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return (number, True) if np.isfinite(number) else (None, True)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None, False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), False
