import numpy as np
import pytest

from benchmarks.datasets.task import TransferTask, as_floats, float_chunks, one_hot
from model.config import BanditConfig


def make_task(**changes) -> TransferTask:
    values = {
        "name": "tiny",
        "arms": ("a", "b"),
        "exclusive_rewards": True,
        "source_contexts": np.zeros((3, 4), np.float32),
        "source_rewards": one_hot(np.array([0, 1, 1]), 2),
        "target_contexts": np.ones((2, 4), np.float32),
        "target_rewards": one_hot(np.array([1, 0]), 2),
        "test_contexts": np.ones((1, 4), np.float32),
        "test_rewards": one_hot(np.array([1]), 2),
    }
    return TransferTask(**{**values, **changes})


def test_configuration_values_make_a_configuration():
    config = BanditConfig.from_mapping(make_task().config_values())
    assert (config.arm_count, config.context_shape, config.exclusive_rewards) == (2, (4,), True)


def test_images_have_three_channels_in_the_configuration():
    grey, colour = np.zeros((3, 5, 6), np.uint8), np.zeros((2, 5, 6, 3), np.uint8)
    task = make_task(source_contexts=grey, target_contexts=colour, test_contexts=colour[:1])
    assert task.config_values()["context_shape"] == (3, 5, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_rewards": np.zeros((3, 2), np.float32)}, "not exclusive"),
        ({"source_rewards": np.full((3, 2), 1.5, np.float32)}, "in \\[0, 1\\]"),
        ({"target_rewards": np.eye(2)}, "float32"),
        ({"test_rewards": np.eye(2, dtype=np.float32)}, "do not fit"),
        ({"target_contexts": np.ones((2, 5), np.float32)}, "target contexts"),
        ({"target_contexts": np.full((2, 4), np.nan, np.float32)}, "not finite"),
        ({"source_contexts": np.zeros((3, 4))}, "float64"),
    ],
)
def test_a_task_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_task(**changes)


def test_grey_and_colour_images_become_floats_of_one_shape():
    grey = np.array([[[0, 255], [51, 204]]], np.uint8)
    colour = np.stack([grey, 255 - grey, grey], axis=-1)
    expected = np.array([[-1, 1], [-0.6, 0.6]], np.float32)
    for images, signs in ((grey, (1, 1, 1)), (colour, (1, -1, 1))):
        floats = as_floats(images)
        assert floats.shape == (1, 3, 2, 2)
        assert floats.dtype == np.float32
        np.testing.assert_allclose(floats[0], [sign * expected for sign in signs], atol=1e-6)


def test_chunks_together_are_the_whole():
    images = np.arange(7 * 4, dtype=np.uint8).reshape(7, 2, 2)
    chunks = list(float_chunks(images, size=3))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(chunks), as_floats(images))


def test_vectors_pass_unchanged():
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(as_floats(vectors), vectors)


def test_tasks_are_equal_only_with_equal_arrays():
    assert make_task().equals(make_task())
    assert not make_task().equals(make_task(target_contexts=np.zeros((2, 4), np.float32)))
    assert not make_task().equals(make_task(name="other"))
