"""Open Bandit Dataset csv: one shown item per row.

The context of a row is its user's four hashed categories (8 numbers each), the user's affinity to every
item and the position, which is also the decision's segment. Cells are kept as text, so that a row is
written again unchanged. Other logs are written with their contexts as user features, without arm names and
probabilities, which the format does not have.
"""

import codecs
import csv
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

from model import ContextKind
from service.formats.hashing import hashed
from service.formats.jsonl import packed
from service.formats.records import (
    LogFormatError,
    LoggedDecision,
    LogHeader,
    LogReader,
    log_lines,
    reason_of,
)
from service.limits import MEBIBYTE
from service.records import CONTEXT_TYPE
from service.unpacking import MAX_LINE_BYTES

FIXED = ("", "timestamp", "item_id", "position", "click", "propensity_score")
USER = "user_feature_"
AFFINITY = "user-item_affinity_"
PLACES = 8  # length of one hashed category
POSITIONS = 3


class _Layout:
    """The column indexes of a file."""

    def __init__(self, names: list[str]) -> None:
        missing = [name for name in FIXED if name not in names]
        if missing or not any(name.startswith(AFFINITY) for name in names):
            name = missing[0] or "the row number" if missing else f"{AFFINITY}0"
            raise LogFormatError(f"line 1: column {name} is missing")
        self.names = names
        self.users = [i for i, name in enumerate(names) if name.startswith(USER)]
        self.affinities = [i for i, name in enumerate(names) if name.startswith(AFFINITY)]
        self.fixed = {name: names.index(name) for name in FIXED}

    def header(self) -> LogHeader:
        size = PLACES * len(self.users) + len(self.affinities) + POSITIONS
        arms = tuple(str(item) for item in range(len(self.affinities)))
        return LogHeader(arms=arms, context_kind=ContextKind.SHARED, context_shape=(size,))

    def decision(self, cells: list[str] | LogFormatError, arms: tuple[str, ...]) -> LoggedDecision:
        if isinstance(cells, LogFormatError):
            raise cells
        if len(cells) != len(self.names):
            raise ValueError(f"expected {len(self.names)} columns, got {len(cells)}")
        at = {name: cells[index] for name, index in self.fixed.items()}
        position = int(at["position"])
        if not 1 <= position <= POSITIONS:
            raise ValueError(f"position: must lie between 1 and {POSITIONS}")
        return LoggedDecision(
            decision_id=at[""],
            arms=arms,
            arm=at["item_id"],
            propensity=float(at["propensity_score"]),
            reward=float(at["click"]),
            context=self._context(cells, position),
            time=at["timestamp"],
            segment=at["position"],
            extra={"open_bandit": cells},
        )

    def _context(self, cells: list[str], position: int) -> bytes:
        users = [hashed([(cells[index], 1.0)], PLACES) for index in self.users]
        affinities = [float(cells[index]) for index in self.affinities]
        where = np.eye(POSITIONS)[position - 1]
        return packed(np.concatenate([*users, affinities, where]))


def read(file: IO[bytes], skip_bad: bool = False) -> LogReader:
    """A log from csv."""
    text = _RowText(file)
    rows = csv.reader(codecs.iterdecode(iter(text), "utf-8"))
    try:
        layout = _Layout(next(rows))
    except StopIteration:
        raise LogFormatError("line 1: there is no header") from None
    except (_RowTooLongError, csv.Error) as error:
        raise LogFormatError(f"line 1: {reason_of(error)}") from None
    header = layout.header()
    return LogReader(
        header,
        _cells_of(rows, text),
        lambda cells: layout.decision(cells, header.arms),
        skip_bad,
        first_number=2,
    )


def write(file: IO[bytes], header: LogHeader, decisions: Iterable[LoggedDecision]) -> int:
    """Write a log; returns the number of decisions."""
    if header.is_per_arm:
        raise LogFormatError("Open Bandit csv cannot represent per-arm contexts")
    writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
    count = 0
    for decision in decisions:
        kept = decision.extra.get("open_bandit")
        if count == 0:
            writer.writerow(_names(header, is_kept=kept is not None))
        writer.writerow(_cells(decision, header, count) if kept is None else kept)
        count += 1
    return count


class _RowText:
    """The lines of a file with their ends; those of one row, which quotes may join, are bounded."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.row_bytes = 0  # of the row that is being read

    def __iter__(self) -> Iterator[bytes]:
        for line in log_lines(self._file):
            self.row_bytes += len(line) + 1
            if self.row_bytes > MAX_LINE_BYTES + 1:
                raise _RowTooLongError(f"A row has at most {MAX_LINE_BYTES // MEBIBYTE} MiB.")
            yield line + b"\n"


class _RowTooLongError(Exception):
    """Quotes join too many lines; no row after it is read."""


def _cells_of(rows: Iterator[list[str]], text: _RowText) -> Iterator[list[str] | LogFormatError]:
    """The cells of each row, or why they cannot be read: the rows after it may be good."""
    while True:
        text.row_bytes = 0
        try:
            yield next(rows)
        except _RowTooLongError as error:
            raise LogFormatError(str(error)) from None
        except StopIteration:
            return
        except (ValueError, csv.Error) as error:
            yield LogFormatError(reason_of(error))


def _names(header: LogHeader, is_kept: bool) -> list[str]:
    count = len(header.arms)
    size = header.context_size
    users = (size - count - POSITIONS) // PLACES if is_kept else size
    return [
        *FIXED,
        *(f"{USER}{index}" for index in range(users)),
        *(f"{AFFINITY}{index}" for index in range(count)),
    ]


def _cells(decision: LoggedDecision, header: LogHeader, number: int) -> list[str]:
    if decision.reward is None:
        raise LogFormatError("Open Bandit csv cannot represent a decision without a reward")
    if decision.propensity is None:
        raise LogFormatError("Open Bandit csv cannot represent a decision without a propensity")
    item = header.arms.index(decision.arm)
    numbers = np.frombuffer(decision.context, CONTEXT_TYPE).tolist()
    values = (number, decision.time or "", item, 1, decision.reward, decision.propensity)
    return [*map(str, values), *map(repr, numbers), *("0.0" for _ in header.arms)]
