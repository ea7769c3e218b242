"""Synthetic to real: digits drawn in many fonts, to MNIST.

Each picture takes a face, a size, a slant, a rotation, a place, two colours and a background at
random, and some are blurred and noisy. The same faces and the same seed give the same pictures.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.datasets.digits.fonts import installed_faces
from benchmarks.datasets.digits.mnist import SIDE, Labelled, digits_task, mnist
from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.task import Bytes, TransferTask
from model.randomness import generator
from model.rounds import Doubles

SOURCE_COUNT, TEST_COUNT = 20_000, 2_000
_FINE = 3  # a picture is drawn larger by this factor, then reduced
_POINTS, _CANVAS = 60, 120  # of the glyph that is slanted, rotated and scaled
_LUMINANCE = np.array([0.299, 0.587, 0.114])
_CONTRAST = 90.0  # least difference in luminance of digit and background, of 255
_BOLDEST = 2  # pixels by which a glyph's strokes may be widened on each side
_NOISY_SHARE = 0.2
_SHADE = 4  # colours are rounded to it, which no eye sees and halves a pack


def load_rendered(name: str, folder: DataFolder) -> TransferTask:
    """Drawn pictures (n, 28, 28, 3) to MNIST (n, 28, 28)."""
    target = mnist(folder)
    faces = installed_faces()
    source, test = (
        rendered(faces, count, generator(0, name, split))
        for split, count in (("train", SOURCE_COUNT), ("test", TEST_COUNT))
    )
    return digits_task(name, (source, test), target)


def rendered(faces: Sequence[Path], count: int, rng: np.random.Generator) -> Labelled:
    """As many pictures of each digit, in random order, and their labels."""
    if without := [str(face) for face in faces if not has_digits(face)]:
        raise ValueError(f"fonts without ten different digits: {', '.join(without)}")
    labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
    pictures = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for i, label in enumerate(labels):
        face = faces[int(rng.integers(len(faces)))]
        pictures[i] = _picture(_shape(face, str(label), rng), rng)
    return pictures, labels


def has_digits(face: Path) -> bool:
    """Whether all ten are there and differ; what a font lacks is drawn as nothing, or as one box."""
    glyphs = {_glyph(face, str(digit), 0).tobytes() for digit in range(10)}
    return len(glyphs) == 10 and bytes(_CANVAS * _CANVAS) not in glyphs


@lru_cache(maxsize=4096)
def _glyph(face: Path, text: str, bold: int) -> Image.Image:
    """White on black, its box in the centre."""
    font = ImageFont.truetype(face, _POINTS)
    left, top, right, bottom = font.getbbox(text, stroke_width=bold)
    glyph = Image.new("L", (_CANVAS, _CANVAS))
    place = (_CANVAS - left - right) / 2, (_CANVAS - top - bottom) / 2
    ImageDraw.Draw(glyph).text(place, text, fill=255, font=font, stroke_width=bold)
    return glyph


def _shape(face: Path, text: str, rng: np.random.Generator) -> Doubles:
    """How much of each pixel the digit covers, (28, 28)."""
    glyph = _glyph(face, text, int(rng.integers(_BOLDEST + 1)))
    left, top, right, bottom = glyph.getbbox() or (0, 0, 1, 1)
    size = rng.uniform(15.0, 22.0) * _FINE / max(right - left, bottom - top)
    angle, slant, stretch = rng.uniform([-0.25, -0.3, 0.85], [0.25, 0.3, 1.15])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    # From a place in the picture to the one in the glyph.
    matrix = np.array([[1 / stretch, slant], [0.0, 1.0]]) @ turn / size
    side = SIDE * _FINE
    centre = side / 2 + rng.uniform(-2.0, 2.0, 2) * _FINE
    offset = _CANVAS / 2 - matrix @ centre
    values = (*matrix[0], offset[0], *matrix[1], offset[1])
    drawn = glyph.transform((side, side), Image.Transform.AFFINE, values, Image.Resampling.BILINEAR)
    return np.asarray(drawn.reduce(_FINE), np.float64) / 255


def _picture(shape: Doubles, rng: np.random.Generator) -> Bytes:
    """The digit in a colour on a background, (28, 28, 3)."""
    ink, paper = _colours(rng)
    ground = _background(paper, rng)
    mixed = ground + shape[..., None] * (ink - ground)
    picture = Image.fromarray(mixed.round().astype(np.uint8))
    blurred = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 0.8)))
    strength = rng.uniform(2.0, 8.0) if rng.random() < _NOISY_SHARE else 0.0
    noisy = np.asarray(blurred) + rng.normal(0.0, 1.0, (SIDE, SIDE, 3)) * strength
    return ((noisy / _SHADE).round() * _SHADE).clip(0, 255).astype(np.uint8)


def _colours(rng: np.random.Generator) -> Doubles:
    """Two colours that can be told apart, (2, 3)."""
    while True:
        colours = rng.uniform(0.0, 255.0, (2, 3))
        if abs(np.diff(colours @ _LUMINANCE)[0]) >= _CONTRAST:
            return colours


def _background(paper: Doubles, rng: np.random.Generator) -> Doubles:
    """One colour, or a few near it that pass into each other, (28, 28, 3)."""
    tiles = int(rng.choice([1, 1, 2, 4]))
    near = paper + rng.normal(0.0, 25.0, (tiles, tiles, 3))
    coarse = Image.fromarray(near.round().clip(0, 255).astype(np.uint8))
    return np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float64)
