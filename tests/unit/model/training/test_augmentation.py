import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional

from model.training import augmentation
from model.training.augmentation import augmented, augmented_images, augmented_vectors


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 8, 8), (6, 1, 5, 9)])
def test_view_is_a_function_of_its_generator(shape):
    contexts = torch.randn(shape, generator=seeded(9))
    torch.manual_seed(1)
    first = augmented(contexts, seeded(), 0.1)
    torch.manual_seed(2)
    assert torch.equal(augmented(contexts, seeded(), 0.1), first)
    assert not torch.equal(augmented(contexts, seeded(1), 0.1), first)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 8, 8)])
def test_view_keeps_shape_and_contexts(shape):
    contexts = torch.randn(shape, generator=seeded(9))
    before = contexts.clone()
    view = augmented(contexts, seeded(), 0.1)
    assert view.shape == contexts.shape
    assert torch.isfinite(view).all()
    assert torch.equal(contexts, before)


def test_two_views_from_one_generator_differ():
    contexts, generator = torch.randn(6, 4, generator=seeded(9)), seeded()
    first = augmented(contexts, generator, 0.1)
    assert not torch.equal(augmented(contexts, generator, 0.1), first)


def test_vector_view_stays_near_its_context():
    contexts = torch.randn(2000, 5, generator=seeded(9)) * torch.tensor([1.0, 10, 100, 0.1, 0.01])
    moved = augmented_vectors(contexts, seeded(), dropout=0.0, noise=0.1) - contexts
    torch.testing.assert_close(moved.std(0), 0.1 * contexts.std(0), rtol=0.1, atol=0.0)


def test_dropped_features_take_the_mean_of_the_batch():
    contexts = torch.randn(500, 3, generator=seeded(9)) + 4
    view = augmented_vectors(contexts, seeded(), dropout=0.25, noise=0.0)
    is_dropped = view != contexts
    assert float(is_dropped.float().mean()) == pytest.approx(0.25, abs=0.04)
    assert torch.equal(view[is_dropped], contexts.mean(0).expand_as(view)[is_dropped])


@pytest.mark.parametrize(("dropout", "of_answers"), [(0.5, 0.1), (0.05, 0.05)])
def test_a_yes_or_no_is_seldom_dropped(dropout, of_answers):
    contexts = torch.randn(4000, 4, generator=seeded(9))
    contexts[:, 2:] = (contexts[:, 2:] > 0).float()
    view = augmented_vectors(contexts, seeded(), dropout=dropout, noise=0.0)
    dropped = (view != contexts).float().mean(dim=0)
    assert dropped.tolist() == pytest.approx([dropout, dropout, of_answers, of_answers], abs=0.02)


def correlation(first: Tensor, second: Tensor) -> Tensor:
    first, second = first - first.mean(1, keepdim=True), second - second.mean(1, keepdim=True)
    return functional.cosine_similarity(first, second)


def test_image_view_changes_gain_and_sign_of_some_images():
    images = torch.randn(200, 1, 8, 8, generator=seeded(9))
    view = augmented_images(images, seeded())
    flat, seen = images.flatten(1), view.flatten(1)
    agreement = correlation(flat, seen)
    assert (agreement < -0.2).any()
    assert (agreement > 0.2).any()


def test_pixels_are_moved_by_noise_of_its_own_each():
    noise = augmentation._noise(torch.zeros(50, 3, 9, 7), seeded())
    assert noise.shape == (50, 3, 9, 7)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.03)
    assert float(noise.std()) == pytest.approx(1.0, abs=0.02)
    assert noise.unique().numel() == 256
    apart = noise.flatten()[:-1] * noise.flatten()[1:]
    assert float(apart.mean()) == pytest.approx(0.0, abs=0.03)


def test_an_image_view_is_a_moved_image_with_gain_bias_and_noise(monkeypatch: pytest.MonkeyPatch):
    images = torch.randn(4, 3, 8, 8, generator=seeded(9))
    moved = augmentation._moved(images, seeded())
    gain, noise = torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8)
    monkeypatch.setattr(augmentation, "_moved", lambda *_: moved.clone())
    monkeypatch.setattr(augmentation, "_gain", lambda *_: gain)
    monkeypatch.setattr(augmentation, "_noise", lambda *_: noise)
    bias = 0.3 * augmentation._spread(images, seeded(), 4, 3, 1, 1)
    middle = moved.mean(dim=(2, 3), keepdim=True)
    expected = (moved - middle) * gain + middle + bias + 0.05 * noise
    torch.testing.assert_close(augmented_images(images, seeded()), expected)


def test_every_image_of_many_has_its_own_view():
    images = torch.randn(1, 1, 6, 6, generator=seeded(9)).expand(
        2 * augmentation._IMAGES_AT_ONCE + 3, -1, -1, -1
    )
    seen = augmented(images, seeded(), 0.1)
    assert seen.shape == images.shape
    assert len(seen.flatten(1).unique(dim=0)) == len(images)


@pytest.mark.parametrize("size", [(28, 28), (5, 9), (1, 4)])
def test_gains_are_interpolated_between_points_at_the_corners(size):
    gains = torch.randn(4, 2, 3, 3)
    found = gains.flatten(2) @ augmentation._between_points(gains, *size).T
    expected = functional.interpolate(gains, size, mode="bilinear", align_corners=True)
    torch.testing.assert_close(found.view_as(expected), expected)


def test_half_of_the_images_have_a_gain_that_changes_within_them():
    images = torch.zeros(400, 3, 8, 8)
    gains = augmentation._gain(images, seeded()).expand_as(images)
    lowest, highest = gains.amin(dim=(2, 3)), gains.amax(dim=(2, 3))
    is_even = (lowest == highest).all(dim=1)
    assert float(is_even.float().mean()) == pytest.approx(0.5, abs=0.1)
    assert ((lowest[is_even].abs() >= 0.5) & (lowest[is_even].abs() <= 1.5)).all()
    turns = (lowest < 0) & (highest > 0)
    assert float(turns[~is_even].float().mean()) > 0.9
    assert not turns[is_even].any()
