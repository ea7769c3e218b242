"""A fit of images: past rounds are a table that names image files, the target is a folder or a zip archive."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from zipfile import ZipFile

from model import Floats
from service.cli.fit.tables import FitError, FitTables, Surveyed, fit_errors
from service.columns.schema import TableError
from service.formats.image_tables import ImageOptions, named_files, opened_image_table
from service.formats.surveying import surveyed_rounds
from service.formats.table_pair import Remark, range_remark
from service.images.files import ARCHIVE, ImageFileError, decoded_images, is_images
from service.images.schema import ImageSchema

DECODED_BYTES = 32 << 20  # of the target's contexts at once


@fit_errors()
def as_archive(wanted: FitTables, folder: Path) -> FitTables:
    """The same with one archive of the source's table and the images that it names."""
    options = wanted.images
    if options is None or wanted.source.suffix.lower() == ARCHIVE:
        return wanted
    path = folder / f"{wanted.source.name}{ARCHIVE}"
    with (
        opened_image_table(wanted.source, options.folder, wanted.csv) as (file, images),
        ZipFile(path, "w") as archive,
    ):
        archive.write(wanted.source, wanted.source.name)
        for name, content in named_files(file, images, options.column):
            archive.writestr(name, content)
    return replace(wanted, source=path)


@fit_errors()
def surveyed_images(wanted: FitTables, options: ImageOptions) -> Surveyed:
    """Read the source's table once; `FitError` says what is wrong with which."""
    wanted.target.stat()  # what is not there is no folder either
    if not is_images(wanted.target):
        raise FitError(f"{wanted.target}: the target is a folder or a zip archive of images")
    if wanted.id is not None:
        raise FitError("--id: images are named by their files")
    with opened_image_table(wanted.source, csv=wanted.csv) as (file, images):
        rounds = surveyed_rounds(file, wanted.arm, wanted.reward)
        schema = options.schema(file, images)
        names = file.names
    known = {wanted.arm, wanted.reward, wanted.time, wanted.propensity, options.column}
    unused = [name for name in names if name not in known]
    unit = wanted.reward_range or rounds.range_to_declare
    remarks = [*range_remark(wanted.names[0], rounds, wanted.reward_range)]
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
    size = max(1, DECODED_BYTES // (4 * prod(schema.shape)))
    try:
        yield from (rows for _, rows in decoded_images(schema, target, size))
    except ImageFileError as error:
        raise TableError(str(error)) from error
