"""Image files made in memory."""

import base64
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(pixels: np.ndarray, **options: Any) -> bytes:
    """The pixels, (h, w) or (h, w, channels), as a PNG file."""
    return encoded(Image.fromarray(pixels), "PNG", **options)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def colours(count: int, height: int = 6, width: int = 8, seed: int = 3) -> np.ndarray:
    """Random pixels, (n, h, w, 3)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def numbers(pixels: np.ndarray) -> np.ndarray:
    """What the model sees of RGB pixels (…, h, w, 3), by the documented formula."""
    scaled = pixels.astype(np.float32) / np.float32(127.5) - 1
    return np.ascontiguousarray(np.moveaxis(scaled, -1, -3))


def pixels_of(content: bytes) -> np.ndarray:
    """The pixels of an image file."""
    with Image.open(BytesIO(content)) as image:
        return np.asarray(image)


def as_json(content: bytes) -> dict[str, str]:
    """An image in a JSON body."""
    return {"image": base64.b64encode(content).decode()}


def zipped(files: dict[str, bytes], compression: int = 8) -> bytes:
    stream = BytesIO()
    with ZipFile(stream, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def bomb() -> bytes:
    """A PNG file whose header claims more pixels than may be decoded."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))
    return PNG_SIGNATURE + body + chunk(b"IEND", b"")


def chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def deep_colours() -> bytes:
    """A PNG file of 8 × 6 pixels with 16 bits in each of three channels."""
    header = struct.pack(">IIBBBBB", 8, 6, 16, 2, 0, 0, 0)
    rows = (b"\0" + bytes(8 * 6)) * 6
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
    return PNG_SIGNATURE + body + chunk(b"IEND", b"")
