"""Reads all files of the archive, to see that they are there, and copies them for a backup."""

import asyncio
from collections.abc import Callable, Sequence

from service.errors import DamagedArchive
from service.storage.archive.files import ArchiveFiles
from service.storage.archive.manifest import Segment

ShowDone = Callable[[int, int], None]


async def faults(
    files: ArchiveFiles, segments: Sequence[Segment], show: ShowDone = lambda done, of: None
) -> list[str]:
    """What is wrong with each file that is missing or has changed."""
    found: list[str] = []
    for number, segment in enumerate(segments, 1):
        try:
            await asyncio.to_thread(files.read, segment.place, segment.sha256)
        except DamagedArchive as error:
            found.append(str(error))
        show(number, len(segments))
    return found


async def copy(
    source: ArchiveFiles,
    target: ArchiveFiles,
    segments: Sequence[Segment],
    show: ShowDone = lambda done, of: None,
) -> list[str]:
    """Copy the files that are not there yet, each checked on both sides; what could not be copied.

    A file is never changed, and its name has its hash: one of the same name and size is the same.
    """
    found: list[str] = []
    for number, segment in enumerate(segments, 1):
        try:
            await asyncio.to_thread(_copy, source, target, segment)
        except DamagedArchive as error:
            found.append(str(error))
        show(number, len(segments))
    return found


def _copy(source: ArchiveFiles, target: ArchiveFiles, segment: Segment) -> None:
    if not target.has(segment.place, segment.size_bytes):
        target.write(segment.place, source.read(segment.place, segment.sha256))
        target.read(segment.place, segment.sha256)
