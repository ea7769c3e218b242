"""Facts of the real data sets, which cannot be shipped: these run where DABAND_DATA names them."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import warfarin
from benchmarks.datasets.folder import CHECKSUMS, VARIABLE, DataFolder, read_csv
from benchmarks.datasets.registry import VECTORS, load
from benchmarks.datasets.task import TransferTask

ROOT = os.environ.get(VARIABLE)
pytestmark = pytest.mark.skipif(
    not ROOT, reason=f"{VARIABLE} is not set: the real data sets cannot be shipped"
)

FOLDER = DataFolder(Path(ROOT or "not set"))


@cache
def task(name: str) -> TransferTask:
    return load(name, ROOT)


@pytest.mark.parametrize("name", VECTORS)
def test_every_vector_task_loads(name):
    loaded = task(name)
    assert loaded.name == name
    assert loaded.test_contexts is loaded.target_contexts
    assert min(len(loaded.source_contexts), len(loaded.target_contexts)) >= 50


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("office-caltech:amazon-webcam", (958, 295, 800, 10)),
        ("office-caltech:caltech-dslr", (1123, 157, 800, 10)),
        ("pancreas:mouse-human", (1868, 1900, 2000, 10)),
        ("gdsc:lung-skin", (180, 56, 677, 10)),
        ("gdsc:blood-aerodigestive", (148, 77, 677, 10)),
        ("warfarin:white-asian", (3167, 1590, 40, 3)),
        ("warfarin:site3-site1", (828, 711, 43, 3)),
    ],
)
def test_sizes(name, sizes):
    loaded = task(name)
    found = (len(loaded.source_contexts), len(loaded.target_contexts))
    assert (*found, *loaded.context_shape, len(loaded.arms)) == sizes


def test_warfarin_shares_are_the_published_ones():
    loaded = task("warfarin:white-asian")
    np.testing.assert_allclose(loaded.source_rewards.mean(axis=0), [0.21, 0.64, 0.15], atol=0.01)
    np.testing.assert_allclose(loaded.test_rewards.mean(axis=0), [0.45, 0.53, 0.02], atol=0.01)


@pytest.mark.parametrize("site", warfarin.SITES)
def test_chosen_sites_know_what_dosing_needs(site):
    patients = read_csv(FOLDER.file(warfarin.FILE, ""))
    ours = [row for row in patients if row["Project Site"] == site.removeprefix("site")]
    for column in ("Age", "Height (cm)", "Weight (kg)", "CYP2C9 consensus"):
        assert np.mean([row[column] != "" for row in ours]) >= 0.9
    assert np.mean([warfarin.a_alleles(row) is not None for row in ours]) >= 0.9


def test_digit_is_the_task_of_the_paper():
    loaded = task("digit")
    assert loaded.source_contexts.shape == (30_000, 28, 28)
    assert loaded.target_contexts.shape == (19_200, 28, 28, 3)
    assert loaded.test_contexts.shape == (9_001, 28, 28, 3)
    assert loaded.source_test_contexts is not None
    assert loaded.source_test_contexts.shape == (10_000, 28, 28)
    counts = loaded.source_rewards[:10].argmax(axis=1).tolist()
    assert counts == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_mosaic_tiles_are_cut_at_their_borders():
    """Neighbouring pixels are alike inside a picture; a wrong cut would put a seam inside."""
    pictures = task("digit").test_contexts.astype(np.int16)
    steps = np.abs(np.diff(pictures, axis=2)).mean(axis=(0, 1, 3))
    assert steps.max() < 1.5 * steps.mean()


def test_all_files_of_the_folder_have_their_checksums():
    found = [name for name in CHECKSUMS if (FOLDER.root / name).is_file()]
    assert [FOLDER.file(name, "") for name in found] == [FOLDER.root / name for name in found]
    assert len(found) >= 9
