"""Reads picture files, by Pillow."""

from pathlib import Path

import numpy as np

from benchmarks.datasets.task import Bytes


def open_picture(path: Path, side: int | None = None) -> Bytes:
    """The pixels of a picture file as RGB (H, W, 3), or resized to (side, side, 3)."""
    # Machines that read packs alone have no Pillow.
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    try:
        with Image.open(path) as picture:
            colours = picture.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} is not a readable picture: {error}") from error
    if side:
        colours = colours.resize((side, side), Image.Resampling.BILINEAR)
    return np.array(colours, np.uint8)
