"""Office-Caltech10, SURF: 10 classes of pictures from four origins, as histograms of visual words."""

import itertools

import numpy as np

from benchmarks.datasets.folder import DataFolder, read_npz
from benchmarks.datasets.task import Bytes, TransferTask, one_hot, unsplit_task
from model.rounds import Floats

FILE = "office_caltech10/surf.npz"
ORIGIN = (
    "It holds the SURF histograms of Gong et al. (2012) as {amazon,caltech10,dslr,webcam}_surf "
    "(n, 800) uint8 with _y, and classes."
)
KEYS = {"amazon": "amazon", "caltech": "caltech10", "dslr": "dslr", "webcam": "webcam"}
NAMES = tuple(f"office-caltech:{a}-{b}" for a, b in itertools.permutations(KEYS, 2))


def load_office_caltech(name: str, folder: DataFolder) -> TransferTask:
    """`office-caltech:SOURCE-TARGET`."""
    arrays = read_npz(folder.file(FILE, ORIGIN))
    arms = tuple(str(label) for label in arrays["classes"])
    source, target = (
        (
            hellinger(arrays[f"{KEYS[domain]}_surf"]),
            one_hot(arrays[f"{KEYS[domain]}_y"], len(arms)),
        )
        for domain in name.partition(":")[2].split("-")
    )
    return unsplit_task(name, arms, source, target)


def hellinger(counts: Bytes) -> Floats:
    """√(d · share of each word): a histogram to sum 1, its root to mean square 1; (n, d)."""
    totals = counts.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(np.sqrt(counts * (counts.shape[1] / totals)), np.float32)
