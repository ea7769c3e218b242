"""What a file may hold once it is unpacked: each limit is declared here, and docs/api.md lists them.

Limits of one piece bound the memory that a reader takes at once; they hold for every file. The budget
bounds what one file that a caller sent may cost in all.
"""

from dataclasses import dataclass

from service.limits import MEBIBYTE

MAX_ROWS = 1_000_000  # of a table, and contexts of an upload
MAX_CELLS = 1 << 30  # of the columns that are read
MAX_UNPACKED_BYTES = 4 << 30  # of a table, an archive or all images that a table names
MAX_SPOOLED_BYTES = 4 << 30  # of contexts as float32
MAX_LINE_BYTES = 8 * MEBIBYTE  # of JSON lines, and of one row of a log in CSV
MAX_ROW_BYTES = 4 * MEBIBYTE  # of CSV: a row lies in one block of text
MAX_CELL_BYTES = 64 << 10  # of one text in a column that is read
MAX_PIECE_BYTES = 32 * MEBIBYTE  # of rows that are read or encoded at once
MAX_PIECE_CELLS = 1 << 22
MAX_LEVELS_SEEN = 1 << 19  # of all columns of two tables
MAX_PAGE_BYTES = 256 * MEBIBYTE  # of the pages of Parquet that are open at once, one a column
MAX_PAGES = 1 << 18  # of the columns that are read
MAX_FOOTER_BYTES = 384 * MEBIBYTE  # of the description of a Parquet file, as it is in memory
MAX_DIRECTORY_BYTES = 16 * MEBIBYTE  # of a zip archive
MAX_FEATURES = 1_000_000  # of one line of dsjson, each for each arm
MAX_FEATURE_BYTES = 16 * MEBIBYTE  # of their names


class OverBudgetError(ValueError):
    """A file holds more than a file may; the text names the limit and what to do."""


@dataclass
class Budget:
    """What is left to one file; it is charged before memory is taken."""

    rows: int = MAX_ROWS
    cells: int = MAX_CELLS
    size_bytes: int = MAX_UNPACKED_BYTES

    def charge(self, rows: int = 0, columns: int = 0, size_bytes: int = 0) -> None:
        """Count rows of some columns, and unpacked bytes."""
        self.rows -= rows
        self.cells -= rows * columns
        self.size_bytes -= size_bytes
        if self.rows < 0:
            raise OverBudgetError(f"A file has at most {MAX_ROWS:,} rows: send it in parts.")
        if self.cells < 0:
            raise OverBudgetError(f"A file has at most {MAX_CELLS:,} cells: send it in parts.")
        if self.size_bytes < 0:
            raise OverBudgetError(
                f"A file has at most {MAX_UNPACKED_BYTES >> 30} GiB unpacked: send it in parts."
            )


class _Unlimited(Budget):
    """What is left to a person's own file: everything."""

    def charge(self, rows: int = 0, columns: int = 0, size_bytes: int = 0) -> None:
        pass


UNLIMITED = _Unlimited()


def rows_at_once(most: int, columns: int) -> int:
    """How many rows of so many columns may be in memory at once, at most `most`."""
    return max(1, min(most, MAX_PIECE_CELLS // max(1, columns)))
