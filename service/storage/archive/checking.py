"""Looks at all files of the archive, to see that they are there, and copies them for a backup."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from service.errors import DamagedArchive
from service.storage.archive.files import ArchiveFiles
from service.storage.archive.manifest import Segment

ShowDone = Callable[[int, int], None]


async def faults(
    work: Callable[[Segment], Awaitable[None]],
    segments: Sequence[Segment],
    show: ShowDone = lambda done, of: None,
) -> list[str]:
    """What is wrong with each file that is missing or has changed, as `work` on it found."""
    found: list[str] = []
    for number, segment in enumerate(segments, 1):
        try:
            await work(segment)
        except DamagedArchive as error:
            found.append(str(error))
        show(number, len(segments))
    return found


async def check(files: ArchiveFiles, segment: Segment) -> None:
    """Read a file in full; raises `DamagedArchive` if it has changed."""
    await asyncio.to_thread(files.check, segment.place, segment.sha256)


async def copy(source: ArchiveFiles, target: ArchiveFiles, segment: Segment) -> None:
    """Copy a file that is not there yet, checked on both sides.

    A file is never changed, and its name has its hash: one of the same name and size is the same.
    """
    await asyncio.to_thread(_copy, source, target, segment)


def _copy(source: ArchiveFiles, target: ArchiveFiles, segment: Segment) -> None:
    if not target.has(segment.place, segment.size_bytes):
        target.write(segment.place, source.read(segment.place, segment.sha256))
        target.read(segment.place, segment.sha256)
