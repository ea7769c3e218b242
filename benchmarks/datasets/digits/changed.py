"""MNIST to MNIST that was blurred, inverted or made noisy. No picture is in both domains."""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.datasets.digits.mnist import Labelled, Split, digits_task, mnist
from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.task import Bytes, TransferTask
from model.randomness import generator
from model.rounds import Doubles

BLUR_PIXELS = 2.0  # standard deviation of the Gaussian
NOISE = 80.0  # standard deviation, of 255
_REACH = 6  # pixels on either side that the blur reads
_SPLITS = ("train", "test")


def load_changed(name: str, folder: DataFolder) -> TransferTask:
    """Source: the first half of MNIST's pictures; target: the other half, changed."""
    halves = [_halves(part) for part in mnist(folder)]
    target = [
        (CHANGES[name](pictures, generator(0, name, split)), labels)
        for split, (_, (pictures, labels)) in zip(_SPLITS, halves, strict=True)
    ]
    source: Split = (halves[0][0], halves[1][0])
    return digits_task(name, source, (target[0], target[1]))


def _halves(part: Labelled) -> tuple[Labelled, Labelled]:
    pictures, labels = part
    half = len(labels) // 2
    return (pictures[:half], labels[:half]), (pictures[half:], labels[half:])


def _blurred(pictures: Bytes, rng: np.random.Generator) -> Bytes:
    steps = np.arange(-_REACH, _REACH + 1)
    weights = np.exp(-0.5 * (steps / BLUR_PIXELS) ** 2)
    blurred = pictures.astype(np.float64)
    for axis in (1, 2):
        blurred = _weighed(blurred, weights / weights.sum(), axis)
    return blurred.round().astype(np.uint8)


def _weighed(pictures: Doubles, weights: Doubles, axis: int) -> Doubles:
    """Weighed sums of neighbours along an axis; outside a picture all is black."""
    padding = [(_REACH, _REACH) if each == axis else (0, 0) for each in range(3)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(pictures, padding), len(weights), axis
    )
    return np.asarray(windows @ weights)


def _inverted(pictures: Bytes, rng: np.random.Generator) -> Bytes:
    return 255 - pictures


def _noisy(pictures: Bytes, rng: np.random.Generator) -> Bytes:
    noise = rng.normal(0.0, NOISE, pictures.shape)
    return (pictures + noise).round().clip(0, 255).astype(np.uint8)


CHANGES: Mapping[str, Callable[[Bytes, np.random.Generator], Bytes]] = {
    "mnist-blur": _blurred,
    "mnist-inverted": _inverted,
    "mnist-noise": _noisy,
}
NAMES = tuple(CHANGES)
