import gzip
import hashlib

import numpy as np
import pytest
from PIL import Image

from benchmarks.datasets.digits import mnist as digit
from benchmarks.datasets.digits.mnist import load_digit
from benchmarks.datasets.folder import ChecksumError, DataFolder, MissingDataError
from benchmarks.datasets.task import one_hot

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (12, 28, 28), dtype=np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)
# Official pictures, 32 x 32: six for training, five for testing.
COLOUR = RNG.integers(0, 256, (11, 32, 32, 3), dtype=np.uint8)
CENTRES = COLOUR[:, 2:30, 2:30]


@pytest.fixture
def folder(tmp_path) -> DataFolder:
    (tmp_path / "digit").mkdir()
    return DataFolder(tmp_path, checksums={})


def write_compact_mnist(folder: DataFolder) -> None:
    np.savez(
        folder.root / digit.MNIST,
        x_train=GREY[:8],
        y_train=LABELS[:8],
        x_test=GREY[8:],
        y_test=LABELS[8:],
    )


def write_published_mnist(folder: DataFolder) -> None:
    for split, part in (("train", slice(0, 8)), ("t10k", slice(8, 12))):
        for kind, array in (("images-idx3", GREY[part]), ("labels-idx1", LABELS[part])):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            path = folder.root / f"digit/{split}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))


def write_mosaic(folder: DataFolder, name: str, tiles, columns: int) -> None:
    rows = -(-len(tiles) // columns)
    padded = np.zeros((rows * columns, 28, 28, 3), np.uint8)
    padded[: len(tiles)] = tiles
    mosaic = padded.reshape(rows, columns, 28, 28, 3).swapaxes(1, 2)
    picture = Image.fromarray(np.ascontiguousarray(mosaic).reshape(rows * 28, columns * 28, 3))
    picture.save(folder.root / name, lossless=True)


def write_compact_mnist_m(folder: DataFolder) -> None:
    write_mosaic(folder, digit.MNIST_M[0], CENTRES[:6], 3)
    write_mosaic(folder, digit.MNIST_M[1], CENTRES[6:], 3)
    np.savez(folder.root / digit.MNIST_M[2], y_train=LABELS[:6], y_test=LABELS[:5])


def write_published_mnist_m(folder: DataFolder, labels=LABELS) -> None:
    root = folder.root / digit.PUBLISHED_MNIST_M
    for split, pictures in (("train", COLOUR[:6]), ("test", COLOUR[6:])):
        (root / f"mnist_m_{split}").mkdir(parents=True)
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(root / f"mnist_m_{split}/{i:08d}.png")
        lines = [f"{i:08d}.png {labels[i]}\n" for i in range(len(pictures))]
        (root / f"mnist_m_{split}_labels.txt").write_text("".join(lines))


def test_compact_files_make_the_task(folder):
    write_compact_mnist(folder)
    write_compact_mnist_m(folder)
    task = load_digit("digit", folder)
    np.testing.assert_array_equal(task.source_contexts, GREY[:8])
    np.testing.assert_array_equal(task.source_test_rewards, one_hot(LABELS[8:], 10))
    np.testing.assert_array_equal(task.target_contexts, CENTRES[:6])
    np.testing.assert_array_equal(task.target_rewards.argmax(axis=1), LABELS[:6])
    np.testing.assert_array_equal(task.test_contexts, CENTRES[6:])
    np.testing.assert_array_equal(task.test_rewards.argmax(axis=1), LABELS[:5])
    assert task.config_values() == {
        "arm_count": 10,
        "context_shape": (3, 28, 28),
        "exclusive_rewards": True,
    }


def test_the_reverse_plays_on_the_other_domain(folder):
    write_compact_mnist(folder)
    write_compact_mnist_m(folder)
    there, back = load_digit("digit", folder), load_digit("digit-back", folder)
    assert there.source_test_contexts is not None
    assert back.source_test_rewards is not None
    assert back.source_contexts.tobytes() == there.target_contexts.tobytes()
    assert back.source_test_rewards.tobytes() == there.test_rewards.tobytes()
    assert back.target_rewards.tobytes() == there.source_rewards.tobytes()
    assert back.test_contexts.tobytes() == there.source_test_contexts.tobytes()


def test_published_files_make_the_same_task(folder, tmp_path_factory):
    write_compact_mnist(folder)
    write_compact_mnist_m(folder)
    other = DataFolder(tmp_path_factory.mktemp("published"), checksums={})
    (other.root / "digit").mkdir()
    write_published_mnist(other)
    write_published_mnist_m(other)
    assert load_digit("digit", other).equals(load_digit("digit", folder))


def test_published_files_are_cut_to_the_size_of_the_compact_ones(folder, monkeypatch):
    write_published_mnist(folder)
    write_published_mnist_m(folder)
    monkeypatch.setattr(digit, "SOURCE_COUNT", 5)
    monkeypatch.setattr(digit, "TARGET_COUNT", 3)
    task = load_digit("digit", folder)
    np.testing.assert_array_equal(task.source_contexts, GREY[:5])
    np.testing.assert_array_equal(task.target_contexts, CENTRES[[0, 2, 4]])
    np.testing.assert_array_equal(task.target_rewards.argmax(axis=1), LABELS[[0, 2, 4]])


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ((), "mnist.npz is missing.*train,t10k"),
        ((write_compact_mnist,), "mnistm_train.webp is missing.*mnist_m.tar.gz"),
    ],
)
def test_a_missing_set_says_what_to_put_where(folder, write, expected):
    for writer in write:
        writer(folder)
    with pytest.raises(MissingDataError, match=expected):
        load_digit("digit", folder)


def test_one_missing_idx_file_is_named(folder):
    write_published_mnist(folder)
    (folder.root / "digit/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingDataError, match=r"t10k-labels-idx1-ubyte\.gz is missing"):
        load_digit("digit", folder)


def test_published_files_of_other_bytes_are_refused(folder):
    write_published_mnist(folder)
    with pytest.raises(ChecksumError, match=r"train-images-idx3-ubyte\.gz"):
        load_digit("digit", DataFolder(folder.root))


def test_published_pictures_are_compared_with_the_known_ones(folder):
    write_compact_mnist(folder)
    write_published_mnist_m(folder)
    right = hashlib.sha256(np.ascontiguousarray(CENTRES[6:]).tobytes()).hexdigest()
    load_digit("digit", DataFolder(folder.root, {digit.PUBLISHED_MNIST_M: right}))
    with pytest.raises(ChecksumError, match="other test pictures"):
        load_digit("digit", DataFolder(folder.root, {digit.PUBLISHED_MNIST_M: "00"}))


def test_published_training_pictures_must_be_numbered_like_mnist(folder):
    write_compact_mnist(folder)
    write_published_mnist_m(folder, labels=LABELS[::-1])
    with pytest.raises(ChecksumError, match="wrong label"):
        load_digit("digit", folder)


def test_a_file_that_is_no_idx_file_is_refused(folder):
    path = folder.root / "digit/x.gz"
    path.write_bytes(gzip.compress(b"nothing of the kind"))
    with pytest.raises(ValueError, match="no idx file"):
        digit.read_idx(path)
