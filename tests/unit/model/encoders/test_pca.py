from typing import Any

import numpy as np
import pytest

from model.encoders.pca import IncrementalPCA
from model.rounds import Doubles


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    factors = rng.standard_normal((200, 3)) * [9.0, 4.0, 2.0]
    return factors @ rng.standard_normal((3, 6)) + rng.standard_normal(6)


def fitted(rows: Doubles, cuts: Any, component_count: int = 3) -> IncrementalPCA:
    pca = IncrementalPCA(component_count)
    for batch in np.split(rows, cuts):
        pca.partial_fit(batch)
    return pca


def test_one_batch_gives_the_singular_vectors_of_the_centered_rows(rows):
    pca = fitted(rows, [])
    _, _, expected = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(pca.components @ expected[:3].T), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(pca.mean, rows.mean(axis=0))


@pytest.mark.parametrize("cuts", [[1], [50, 100, 150], [3, 4, 5, 199]])
def test_batches_give_the_components_of_all_rows(rows, cuts):
    pca, whole = fitted(rows, cuts), fitted(rows, [])
    np.testing.assert_allclose(pca.components, whole.components, atol=1e-8)
    np.testing.assert_allclose(pca.mean, rows.mean(axis=0), atol=1e-12)
    assert pca.sample_count == 200


def test_shift_between_batches_counts_as_variance():
    near = np.zeros((10, 2))
    pca = fitted(np.vstack([near, near + np.array([0.0, 5.0])]), [10], component_count=1)
    np.testing.assert_allclose(pca.components, [[0.0, 1.0]], atol=1e-12)


def test_noisy_rows_keep_most_of_their_variance(rows):
    noisy = rows + 0.3 * np.random.default_rng(0).standard_normal(rows.shape)
    centered = noisy - noisy.mean(axis=0)
    pca = fitted(noisy, range(10, 200, 10))
    best = (np.linalg.svd(centered, compute_uv=False)[:3] ** 2).sum()
    assert ((centered @ pca.components.T) ** 2).sum() > 0.999 * best


def test_components_are_orthonormal_with_their_largest_entry_positive(rows):
    components = fitted(rows, [70]).components
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-9)
    assert all(row[np.abs(row).argmax()] > 0 for row in components)


def test_empty_batch_changes_nothing(rows):
    pca = fitted(rows, [])
    before = pca.components.copy()
    pca.partial_fit(np.zeros((0, 6)))
    np.testing.assert_array_equal(pca.components, before)
    assert pca.sample_count == 200


def test_first_batch_may_be_a_single_row():
    pca = fitted(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), [1], component_count=1)
    np.testing.assert_allclose(pca.components, [[0.5**0.5, 0.5**0.5]])
