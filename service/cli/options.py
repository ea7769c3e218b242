"""What the commands share: their options, and an end with a line that says why.

A module of commands imports at its top only what is cheap, and a command imports what it works with
when it runs: `daband --help` and the commands that ask a running service load no torch.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Protocol

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from service.columns.seen import ColumnTypes
    from service.formats.cells.genes import CellOptions
    from service.formats.image_tables import ImageOptions

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Names of files that hold tables; those of workbooks are refused with what to do.
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".gz", ".h5ad", ".xlsx", ".xls", ".ods")

DataDir = Annotated[Path | None, typer.Option(help="folder of the embedded database")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="DABAND_URL", help="the running service; http://127.0.0.1:8000 if left out"
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="DABAND_API_KEY", help="for a service that asks for one"),
]
# How a table of past rounds is read.
Time = Annotated[str | None, typer.Option(help="the column that orders the rounds")]
Propensity = Annotated[str | None, typer.Option(help="the column of the arm's probability")]
Ignore = Annotated[list[str] | None, typer.Option(help="a column to leave out; repeatable")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="a column of numbers that are names; repeatable")
]
Numeric = Annotated[
    list[str] | None, typer.Option(help="a column that must hold numbers; repeatable")
]
Ordinal = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=LOW,…,HIGH",
        help="a column and its levels in their order; repeatable; ranges such as 10 - 19 are found",
    ),
]
RewardRange = Annotated[
    tuple[float, float] | None,
    typer.Option(
        help="the lowest and highest possible reward; default: 0 1, or those of the table"
    ),
]
Separator = Annotated[str | None, typer.Option(help="of a CSV file; default: detected")]
Decimal = Annotated[str | None, typer.Option(help="of a CSV file; default: detected")]
Encoding = Annotated[str, typer.Option(help="of a CSV file")]
# How the cells of an .h5ad file become rows.
MostGenes = Annotated[
    int | None,
    typer.Option("--genes", min=1, help=".h5ad: keep the most variable genes; default: all"),
]
Counts = Annotated[
    bool, typer.Option("--counts", help=".h5ad: X holds counts; they become log1p(CPM)")
]
Orthologs = Annotated[
    Path | None,
    typer.Option(help=".h5ad: other names of its genes, a CSV file of two columns"),
]
# How the images of a table's rows are found.
ImageColumn = Annotated[
    str | None,
    typer.Option("--image", help="contexts are images: the column of their files' names"),
]
Images = Annotated[
    Path | None, typer.Option(help="the folder of the images; default: that of the table")
]
ImageShape = Annotated[
    list[int] | None,
    typer.Option(
        "--shape", help="of images: channels, height and width; default: as the first, in colours"
    ),
]
Resize = Annotated[
    bool, typer.Option("--resize", help="of images: resize other sizes to the shape")
]
# Where heavy work runs.
EngineName = Annotated[
    Literal["process", "ray"], typer.Option("--engine", help="where the work runs")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="pieces at a time; default: 1, with Ray all cores of this machine"),
]
Address = Annotated[
    str | None, typer.Option(help="with --engine ray: a cluster that runs, such as 10.0.0.5:6379")
]
Duration = Annotated[str, typer.Option(metavar="30d", help="such as 90s, 15m, 24h or 30d")]
By = Annotated[str | None, typer.Option(help="the author, for the audit trail")]
Reason = Annotated[str | None, typer.Option(help="the reason, for the audit trail")]


def cell_options(
    genes: int | None, counts: bool, orthologs: Path | None, files: Sequence[Path]
) -> "CellOptions":
    """The options of .h5ad files, which other files do not have."""
    from service.columns.schema import TableError
    from service.formats.cells.genes import CellOptions, read_orthologs
    from service.formats.cells.reading import SUFFIX

    if (genes or counts or orthologs) and not any(path.suffix.lower() == SUFFIX for path in files):
        fail("--genes, --counts and --orthologs are for .h5ad files")
    if orthologs is None:
        return CellOptions(genes, counts)
    with file_errors(TableError, UnicodeError):
        return CellOptions(genes, counts, read_orthologs(orthologs))


def image_options(
    column: str | None, folder: Path | None, shape: Sequence[int] | None, resize: bool
) -> "ImageOptions | None":
    """The options of images, which tables of other contexts do not have."""
    from service.formats.image_tables import ImageOptions

    if column is None:
        if folder or shape or resize:
            fail("--images, --shape and --resize need --image")
        return None
    return ImageOptions(column, folder, tuple(shape or ()), resize)


def commands(help_: str) -> typer.Typer:
    """An empty group of commands; its help is plain, for rich would take most of its time to load."""
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 120},
        help=help_,
    )


def json_object(text: str) -> dict[str, Any]:
    """The value of `--config`."""
    try:
        found = json.loads(text)
    except ValueError:
        fail("--config must be JSON")
    if not isinstance(found, dict):
        fail("--config must be a JSON object")
    return found


def column_types(
    categorical: Sequence[str] | None, numeric: Sequence[str] | None, ordinal: Sequence[str] | None
) -> "ColumnTypes":
    """What `--categorical`, `--numeric` and `--ordinal` say."""
    from service.columns.seen import ColumnTypes

    orders: dict[str, list[str]] = {}
    for text in ordinal or ():
        name, _, levels = text.partition("=")
        orders[name] = [each.strip() for each in levels.split(",")]
        if not name or len(orders[name]) < 2:
            fail("--ordinal must be COLUMN=LOW,…,HIGH")
    return ColumnTypes(categorical or (), numeric or (), orders)


def duration(text: str) -> timedelta:
    """The value of a duration."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        fail("a duration must be a number with s, m, h or d, such as 24h")
    return timedelta(seconds=int(found[1]) * UNITS[found[2]])


def fail(message: str) -> NoReturn:
    """End the command with an error message."""
    typer.echo(message, err=True)
    raise typer.Exit(2)


@contextmanager
def file_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Ends the command with a message for a file that cannot be opened, and for errors of these kinds."""
    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    except kinds as error:
        fail(str(error))


class ShowProgress(Protocol):
    """Moves a bar to how much is done of how much, if that is known."""

    def __call__(self, done: int, total: int | None, title: str | None = None) -> None:
        """Move it; a title replaces the one before."""


@contextmanager
def progress_bar(title: str) -> Iterator[ShowProgress]:
    """A bar on standard error for work of more than two seconds; it goes when the work is done."""
    with progress_display() as display:
        task = display.add_task(title, total=None)

        def show(done: int, total: int | None, title: str | None = None) -> None:
            display.update(task, completed=done, total=total, description=title)

        yield show


def progress_display() -> "Progress":
    """The look of all bars: a title, the bar, how much is done of how much, the time that is left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # Outside a terminal a bar that is removed leaves empty lines.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
