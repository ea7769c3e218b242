"""Tables of rounds whose contexts are images: one column has the names of their files."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from model import Floats
from service.columns.schema import TableError
from service.formats.rows.csv_rows import CsvOptions
from service.formats.tables import TableFile
from service.images.decoding import MAX_UPLOAD_PIXELS, decoded_image, size_of
from service.images.files import ARCHIVE, ImageFileError
from service.images.named import NamedImages, images_beside_table
from service.images.schema import ImageError, ImageSchema
from service.ops.unnamed_files import unnamed_file

TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")  # beside the images of an archive
NAMES = 4096  # that are read at once
NUMBERS_BYTES = 8 << 20  # of the contexts that are decoded at once


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How rounds of images are found: the column of their files' names, their folder, their numbers.

    Without a shape it is that of the first image, in colours.
    """

    column: str
    folder: Path | None = None
    shape: tuple[int, ...] = ()
    resize: bool = False

    def schema(self, file: TableFile, images: NamedImages) -> ImageSchema:
        """What to declare of the images that a table names."""
        if self.shape:
            try:
                return ImageSchema.of(self.shape, resize=self.resize)
            except ImageError as error:
                raise TableError(str(error)) from None
        found = _first_schema(file, images, self.column)
        return replace(found, resize=self.resize)


@contextmanager
def opened_image_table(
    path: Path,
    images: Path | None = None,
    csv: CsvOptions | None = None,
    sent_as: str | None = None,
) -> Iterator[tuple[TableFile, NamedImages]]:
    """A table and its images: in a zip archive with it, or in a folder, by default the table's own."""
    options = csv or CsvOptions()
    if Path(sent_as or path.name).suffix.lower() != ARCHIVE:
        yield TableFile(path, options), NamedImages.of_folder(images or path.parent)
        return
    with unnamed_file() as (file, table):
        try:
            with images_beside_table(path, TABLES, file) as (name, named):
                yield TableFile(table, options, name), named
        except ImageFileError as error:
            raise TableError(str(error)) from error


def image_rows(
    file: TableFile,
    images: NamedImages,
    schema: ImageSchema,
    column: str,
    apart: Sequence[str],
    ignore: Sequence[str],
) -> Iterator[tuple[pa.Table, Floats]]:
    """Columns set apart, and the images (n, channels, height, width) that each row names."""
    for other in file.names:
        if other not in {*apart, *ignore}:
            raise TableError(f"Column `{other}` has no meaning beside an image: ignore it.", other)
    bounded = schema.within(MAX_UPLOAD_PIXELS)
    first_row = 0
    rows_at_once = max(1, NUMBERS_BYTES // (4 * math.prod(schema.shape)))
    for table in file.tables(rows_at_once, [*apart, column]):
        rows = np.empty((table.num_rows, *schema.shape), dtype=np.float32)
        for index, name in enumerate(file.texts(table, column, first_row)):
            rows[index] = _decoded(bounded, images, name, column, first_row + index)
        yield table.select(list(apart)), rows
        first_row += table.num_rows


def named_files(file: TableFile, images: NamedImages, column: str) -> Iterator[tuple[str, bytes]]:
    """The images that a table names, each once."""
    file.require(column)
    seen: set[str] = set()
    first_row = 0
    for table in file.tables(NAMES, [column]):
        for row, name in enumerate(file.texts(table, column, first_row), first_row):
            if name is None or name not in seen:
                content = _content(images, name, column, row)
                seen.add(str(name))
                yield str(name), content
        first_row += table.num_rows


def _first_schema(file: TableFile, images: NamedImages, column: str) -> ImageSchema:
    file.require(column)
    for table in file.tables(1, [column]):
        name = file.texts(table, column, 0)[0]
        width, height = size_of(_content(images, name, column, 0))
        return ImageSchema(3, height, width)
    raise TableError(f"{file.name} has no rows.")


def _decoded(
    schema: ImageSchema, images: NamedImages, name: str | None, column: str, row: int
) -> Floats:
    try:
        return decoded_image(schema, _content(images, name, column, row))
    except ImageError as error:
        raise TableError(f"{name}: {error}", column, row) from None


def _content(images: NamedImages, name: str | None, column: str, row: int) -> bytes:
    if name is None:
        raise TableError(f"Column `{column}` may not be missing.", column, row)
    try:
        return images.content(name)
    except ImageFileError as error:
        raise TableError(str(error), column, row) from None
