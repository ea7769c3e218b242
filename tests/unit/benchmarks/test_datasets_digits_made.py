"""Digits that are made here: changed MNIST, and digits drawn in fonts."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest

from benchmarks.datasets.digits import changed, fonts, mnist, rendered
from benchmarks.datasets.folder import DataFolder, MissingDataError
from model.randomness import generator

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (12, 28, 28), dtype=np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)
FACE = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
WITHOUT_DIGITS = FACE.with_name("STIXSizOneSymReg.ttf")


@pytest.fixture
def folder(tmp_path) -> DataFolder:
    (tmp_path / "digit").mkdir()
    np.savez(
        tmp_path / mnist.MNIST,
        x_train=GREY[:8],
        y_train=LABELS[:8],
        x_test=GREY[8:],
        y_test=LABELS[8:],
    )
    return DataFolder(tmp_path, checksums={})


@pytest.mark.parametrize("name", changed.NAMES)
def test_changed_pictures_are_others_than_the_source_s(folder, name):
    task = changed.load_changed(name, folder)
    assert task.source_contexts.tobytes() == GREY[:4].tobytes()
    assert task.target_rewards.argmax(axis=1).tolist() == LABELS[4:8].tolist()
    assert task.source_test_contexts is not None
    assert task.source_test_contexts.tobytes() == GREY[8:10].tobytes()
    assert task.test_rewards.argmax(axis=1).tolist() == LABELS[10:].tolist()
    assert not np.array_equal(task.target_contexts, GREY[4:8])
    assert changed.load_changed(name, folder).equals(task)


def test_each_change_does_what_it_says():
    point = np.zeros((1, 28, 28), np.uint8)
    point[0, 10, 20] = 255
    pictures = {name: change(point, generator(0)) for name, change in changed.CHANGES.items()}
    assert np.array_equal(pictures["mnist-inverted"], 255 - point)
    blurred = pictures["mnist-blur"][0].astype(float)
    assert np.unravel_index(blurred.argmax(), blurred.shape) == (10, 20)
    assert blurred[10, 22] == pytest.approx(blurred.max() * np.exp(-0.5), abs=1)
    assert blurred[10, 18] == blurred[12, 20] == blurred[10, 22]
    noisy = pictures["mnist-noise"].astype(float)
    # Half of the noise on black is cut off.
    assert np.square(noisy[point == 0]).mean() == pytest.approx(changed.NOISE**2 / 2, rel=0.15)


def test_drawn_digits_are_varied_and_the_same_again():
    pictures, labels = rendered.rendered([FACE], 40, generator(0))
    again = rendered.rendered([FACE], 40, generator(0))
    assert np.bincount(labels).tolist() == [4] * 10
    assert pictures.shape == (40, 28, 28, 3)
    assert np.array_equal(pictures, again[0])
    assert np.array_equal(labels, again[1])
    assert len({picture.tobytes() for picture in pictures}) == 40
    # A digit stands out of what surrounds it.
    assert pictures.reshape(40, -1, 3).std(axis=1).max(axis=1).min() > 5


def test_a_drawn_digit_is_what_its_label_says():
    """Pictures of one digit cover alike pixels, whatever their colours."""
    rng = generator(0)
    shapes = np.array([[rendered._shape(FACE, str(d), rng) for _ in range(20)] for d in (1, 8)])
    means = shapes.mean(axis=1).reshape(2, -1)
    near = [((shape.ravel() - means) ** 2).sum(axis=1).argmin() for shape in shapes[0]]
    assert np.mean(near) < 0.2


def test_a_font_without_digits_is_refused():
    with pytest.raises(ValueError, match=r"without ten different digits: .*STIXSizOneSymReg"):
        rendered.rendered([FACE, WITHOUT_DIGITS], 10, generator(0))


def test_a_missing_font_names_its_package(tmp_path):
    with pytest.raises(
        MissingDataError, match=r"Debian package fonts-dejavu\. Install fonts-dejavu "
    ):
        fonts.installed_faces(tmp_path)
    for patterns in fonts.PACKAGES.values():
        for pattern in patterns:
            face = tmp_path / pattern.replace("*", "x").replace("[BMRLS]", "B")
            face.parent.mkdir(parents=True, exist_ok=True)
            face.touch()
    assert len(fonts.installed_faces(tmp_path)) == sum(map(len, fonts.PACKAGES.values()))
