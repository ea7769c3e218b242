"""Bodies of requests that are read while they are sent: a file of any size takes little memory."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _File:
    """A file, unpacked if its name ends in `.gz`; each attempt reads it from its beginning."""

    path: Path

    def _open(self) -> IO[bytes]:
        if self.path.suffix.lower() == ".gz":
            return gzip.open(self.path)  # type: ignore[return-value]  # it reads bytes
        return self.path.open("rb")


class FileBody(_File):
    """For the sync client."""

    def __iter__(self) -> Iterator[bytes]:
        with self._open() as stream:
            while piece := stream.read(PIECE_BYTES):
                yield piece


class AsyncFileBody(_File):
    """For the async client; a slow disk does not hold up the event loop."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with await asyncio.to_thread(self._open) as stream:
            while piece := await asyncio.to_thread(stream.read, PIECE_BYTES):
                yield piece
