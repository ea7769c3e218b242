"""A fit of images: past rounds are a table that names image files, the target is a folder or a zip archive."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from model import Floats
from service.cli.fit.tables import FitError, FitTables, Surveyed
from service.columns.schema import TableError
from service.formats.image_tables import ImageOptions, named_files, opened_image_table
from service.formats.surveying import surveyed_rounds
from service.formats.table_pair import Remark, range_remark
from service.images.decoding import decoded_image
from service.images.files import ARCHIVE, ImageFileError, images_in, is_images
from service.images.schema import ImageError, ImageSchema

DECODED_BYTES = 32 << 20  # of the target's contexts at once


def as_archive(wanted: FitTables, folder: Path) -> FitTables:
    """The same with one archive of the source's table and the images that it names."""
    options = wanted.images
    if options is None or wanted.source.suffix.lower() == ARCHIVE:
        return wanted
    path = folder / f"{wanted.source.name}{ARCHIVE}"
    try:
        with (
            opened_image_table(wanted.source, options.folder, wanted.csv) as (file, images),
            ZipFile(path, "w") as archive,
        ):
            archive.write(wanted.source, wanted.source.name)
            for name, content in named_files(file, images, options.column):
                archive.writestr(name, content)
    except OSError as error:
        raise FitError(f"{error.filename}: {error.strerror}") from error
    except (TableError, LookupError) as error:
        raise FitError(str(error)) from error
    return replace(wanted, source=path)


def surveyed_images(wanted: FitTables, options: ImageOptions) -> Surveyed:
    """Read the source's table once; `FitError` says what is wrong with which."""
    if not is_images(wanted.target):
        raise FitError(f"{wanted.target}: the target is a folder or a zip archive of images")
    if wanted.id is not None:
        raise FitError("--id: images are named by their files")
    try:
        wanted.target.stat()
        with opened_image_table(wanted.source, csv=wanted.csv) as (file, images):
            rounds = surveyed_rounds(file, wanted.arm, wanted.reward)
            schema = options.schema(file, images)
            names = file.names
    except OSError as error:
        raise FitError(f"{error.filename}: {error.strerror}") from error
    except (TableError, ImageError, LookupError) as error:
        raise FitError(str(error)) from error
    known = {wanted.arm, wanted.reward, wanted.time, wanted.propensity, options.column}
    unused = [name for name in names if name not in known]
    unit = wanted.reward_range or rounds.range_to_declare
    remarks = [*range_remark(wanted, rounds)]
    remarks += [Remark(f"column {name} is not used: the context is the image") for name in unused]
    return Surveyed(
        names,
        {"kind": "image", "shape": [*schema.shape], "resize": schema.resize},
        rounds,
        unit,
        tuple(unused),
        (),
        remarks,
        lambda: _decoded(schema, wanted.target),
    )


def _decoded(schema: ImageSchema, target: Path) -> Iterator[Floats]:
    try:
        files = images_in(target)
        size = max(1, DECODED_BYTES // (4 * prod(schema.shape)))
        while some := list(islice(files, size)):
            yield np.stack([_numbers(schema, *each) for each in some])
    except ImageFileError as error:
        raise TableError(str(error)) from error


def _numbers(schema: ImageSchema, name: str, content: bytes) -> Floats:
    try:
        return decoded_image(schema, content)
    except ImageError as error:
        raise ImageFileError(str(error), name) from None
