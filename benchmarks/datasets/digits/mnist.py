"""DIGIT: MNIST to MNIST-M, as the paper's zero-shot table has it, and MNIST-M to MNIST.

The first 30,000 training pictures of MNIST, tested on its 10,000 test pictures; 19,200 training
pictures of MNIST-M, tested on its 9,001 test pictures; of the official 32 × 32 pictures the centre
28 × 28. Each set is read from its compact files or from the published ones. The published MNIST-M
has more than 19,200 training pictures: every third or so is taken.
"""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.folder import ChecksumError, DataFolder, read_npz
from benchmarks.datasets.pictures import open_picture
from benchmarks.datasets.task import Bytes, TransferTask, one_hot

NAMES = ("digit", "digit-back")
MNIST = "digit/mnist.npz"
MNIST_M = ("digit/mnistm_train.webp", "digit/mnistm_test.webp", "digit/mnistm_labels.npz")
PUBLISHED_MNIST_M = "digit/mnist_m"
SOURCE_COUNT, TARGET_COUNT = 30_000, 19_200
SIDE, BORDER = 28, 2
MNIST_ORIGIN = (
    "MNIST is read from it, or from the four published files beside it: "
    "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz "
    "(https://storage.googleapis.com/cvdf-datasets/mnist/)."
)
MNIST_M_ORIGIN = (
    "MNIST-M is read from mosaics (mnistm_train.webp, mnistm_test.webp, mnistm_labels.npz in "
    "digit/), or from the published folder of Ganin and Lempitsky: mnist_m_train/, mnist_m_test/, "
    "mnist_m_train_labels.txt and mnist_m_test_labels.txt, unpacked from mnist_m.tar.gz."
)
Labelled = tuple[Bytes, Bytes]
Split = tuple[Labelled, Labelled]  # for training, for testing


def load_digit(name: str, folder: DataFolder) -> TransferTask:
    """Pictures as bytes: MNIST (n, 28, 28), MNIST-M (n, 28, 28, 3); `digit-back` is the reverse."""
    grey = mnist(folder)
    colour = _mnist_m(folder, grey[0][1])
    source, target = (colour, grey) if name == "digit-back" else (grey, colour)
    return digits_task(name, source, target)


def digits_task(name: str, source: Split, target: Split) -> TransferTask:
    """Ten digits, from one domain's training and test pictures to another's."""
    return TransferTask(
        name=name,
        arms=tuple(str(digit) for digit in range(10)),
        exclusive_rewards=True,
        source_contexts=source[0][0],
        source_rewards=one_hot(source[0][1], 10),
        target_contexts=target[0][0],
        target_rewards=one_hot(target[0][1], 10),
        test_contexts=target[1][0],
        test_rewards=one_hot(target[1][1], 10),
        source_test_contexts=source[1][0],
        source_test_rewards=one_hot(source[1][1], 10),
    )


def mnist(folder: DataFolder) -> Split:
    """MNIST's pictures (n, 28, 28) and labels, for training and for testing."""
    if not (folder.root / MNIST).is_file() and any(folder.root.glob("digit/*-ubyte.gz")):
        train, test = (
            (
                read_idx(folder.file(f"digit/{split}-images-idx3-ubyte.gz", MNIST_ORIGIN)),
                read_idx(folder.file(f"digit/{split}-labels-idx1-ubyte.gz", MNIST_ORIGIN)),
            )
            for split in ("train", "t10k")
        )
        return (train[0][:SOURCE_COUNT], train[1][:SOURCE_COUNT]), test
    arrays = read_npz(folder.file(MNIST, MNIST_ORIGIN))
    return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])


def read_idx(path: Path) -> Bytes:
    """A gzipped idx file of bytes, any number of dimensions."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is no idx file of bytes")
    sizes = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(sizes)).reshape(sizes).copy()


def _mnist_m(folder: DataFolder, mnist_labels: Bytes) -> Split:
    if (folder.root / PUBLISHED_MNIST_M).is_dir() and not (folder.root / MNIST_M[0]).is_file():
        return _published_mnist_m(folder, mnist_labels)
    train, test, labels = (folder.file(name, MNIST_M_ORIGIN) for name in MNIST_M)
    arrays = read_npz(labels)
    train_labels, test_labels = arrays["y_train"], arrays["y_test"]
    return (
        (read_mosaic(train, len(train_labels)), train_labels),
        (read_mosaic(test, len(test_labels)), test_labels),
    )


def read_mosaic(path: Path, count: int) -> Bytes:
    """The first `count` tiles of a mosaic, row by row, (count, 28, 28, 3)."""
    mosaic = open_picture(path)
    rows, columns = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
    tiles = mosaic.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2)
    return np.ascontiguousarray(tiles.reshape(-1, SIDE, SIDE, 3)[:count])


def _published_mnist_m(folder: DataFolder, mnist_labels: Bytes) -> Split:
    listed = {split: _listed(folder, split) for split in ("train", "test")}
    _check_numbering(folder, listed["train"], mnist_labels)
    count = len(listed["train"])
    chosen = np.linspace(0, count, min(TARGET_COUNT, count), endpoint=False).astype(np.int64)
    train = _centres(folder, "train", [listed["train"][i] for i in chosen])
    test = _centres(folder, "test", listed["test"])
    _check_pictures(folder, test[0])
    return train, test


def _listed(folder: DataFolder, split: str) -> list[tuple[str, int]]:
    path = folder.file(f"{PUBLISHED_MNIST_M}/mnist_m_{split}_labels.txt", MNIST_M_ORIGIN)
    lines = (line.split() for line in path.read_text().splitlines() if line.strip())
    return [(name, int(label)) for name, label in lines]


def _centres(folder: DataFolder, split: str, listed: list[tuple[str, int]]) -> Labelled:
    pictures = np.empty((len(listed), SIDE, SIDE, 3), np.uint8)
    inner = slice(BORDER, BORDER + SIDE)
    for i, (name, _) in enumerate(listed):
        path = folder.file(f"{PUBLISHED_MNIST_M}/mnist_m_{split}/{name}", MNIST_M_ORIGIN)
        pictures[i] = open_picture(path)[inner, inner]
    return pictures, np.array([label for _, label in listed], np.uint8)


def _check_numbering(
    folder: DataFolder, listed: list[tuple[str, int]], mnist_labels: Bytes
) -> None:
    """Training picture i of MNIST-M is made of training picture i of MNIST."""
    for name, label in listed:
        number = int(Path(name).stem)
        if number < len(mnist_labels) and mnist_labels[number] != label:
            raise ChecksumError(f"{folder.root / PUBLISHED_MNIST_M}: {name} has a wrong label")


def _check_pictures(folder: DataFolder, pictures: NDArray[Any]) -> None:
    """No single file stands for the folder: its decoded test pictures must be the known ones."""
    expected = folder.checksums.get(PUBLISHED_MNIST_M)
    if expected and hashlib.sha256(pictures.tobytes()).hexdigest() != expected:
        raise ChecksumError(f"{folder.root / PUBLISHED_MNIST_M} holds other test pictures")
