"""Mouse and human pancreas cells as .h5ad files for `daband fit`, and how well the arms fit.

`python -m benchmarks.cells FOLDER` writes mouse.h5ad, human.h5ad and orthologs.csv. An arm is a cell type;
every mouse cell has played one, half of them their own, and earned 1 if it was. After the fit
`python -m benchmarks.cells FOLDER --arms arms.csv` says how many human cells got their own type, beside a
ridge regression of the rewards for each arm.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.datasets.folder import DataFolder, default_root
from service.formats.cells.genes import CellOptions, read_orthologs
from service.formats.cells.reading import CellFile
from service.formats.cells.tables import shared_tables
from tests.support.cells import write_cells

FILE, ORIGIN = "baron_pancreas/mouse_human.npz", "the counts of GSE84133; docs/data.md"
OWN_ARM_SHARE = 0.5
PENALTIES = (1.0, 100.0, 1000.0)
GENES = 500


def write(folder: Path, seed: int = 0) -> None:
    """Both files and the map; a gene of its own stands for the molecules that the data set left out."""
    data = np.load(DataFolder(default_root()).file(FILE, ORIGIN))
    types = sorted(set(data["mouse_class"]) & set(data["human_class"]))
    rng = np.random.default_rng(seed)
    for species in ("mouse", "human"):
        kept = np.isin(data[f"{species}_class"], types)
        counts, truth = data[f"{species}_counts"][kept].astype(np.float32), data[f"{species}_class"]
        rest = data[f"{species}_total_umi"][kept] - counts.sum(axis=1)
        genes = [*map(str, data[f"gene_{species}"]), f"rest_{species}"]
        obs = {"type": truth[kept].tolist()}
        if species == "mouse":
            is_own = rng.random(len(counts)) < OWN_ARM_SHARE
            arms = np.where(is_own, truth[kept], rng.choice(types, len(counts)))
            obs = {"guess": arms.tolist(), "right": (arms == truth[kept]).astype(np.float64)}
        values = np.c_[counts, rest].astype(np.float32)
        write_cells(folder / f"{species}.h5ad", values, genes, obs, "csr_matrix")
    with (folder / "orthologs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(zip(data["gene_mouse"], data["gene_human"], strict=True))


def report(folder: Path, arms: Path) -> None:
    """Print the share of human cells that got their own type."""
    with CellFile(folder / "human.h5ad") as file:
        truth = np.array(file.column("type").to_pylist())
    with arms.open(newline="") as stream:
        given = np.array([row["arm"] for row in csv.DictReader(stream)])
    print(f"daband fit                                  {np.mean(given == truth):.3f}")
    print(f"the commonest type                          {_commonest(truth):.3f}")
    source, target, played, rewards = _tables(folder)
    for penalty in PENALTIES:
        for name, contexts in (
            ("by the source", _scaled(target, source)),
            ("each by itself", _scaled(target, target)),
        ):
            found = _ridge(_scaled(source, source), contexts, played, rewards, penalty)
            line = f"ridge {penalty:>5g}, standardised {name}"
            print(f"{line:<44}{np.mean(found == truth):.3f}")


def _tables(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    options = CellOptions(GENES, True, read_orthologs(folder / "orthologs.csv"))
    source_file = folder / "mouse.h5ad", ["guess", "right"]
    with tempfile.TemporaryDirectory() as made:
        paths = shared_tables(source_file, (folder / "human.h5ad", ()), options, Path(made))
        mouse, human = map(pq.read_table, paths)
    genes = human.column_names
    source, target = (
        np.column_stack([each[name].to_numpy() for name in genes]) for each in (mouse, human)
    )
    return source, target, np.array(mouse["guess"].to_pylist()), mouse["right"].to_numpy()


def _commonest(truth: np.ndarray) -> float:
    return float(np.unique(truth, return_counts=True)[1].max() / len(truth))


def _scaled(contexts: np.ndarray, by: np.ndarray) -> np.ndarray:
    scaled = (contexts - by.mean(axis=0)) / (by.std(axis=0) + 1e-9)
    return np.column_stack([scaled, np.ones(len(scaled))])


def _ridge(
    source: np.ndarray,
    target: np.ndarray,
    played: np.ndarray,
    rewards: np.ndarray,
    penalty: float,
) -> np.ndarray:
    """The arm with the largest predicted reward, for each row of the target."""
    arms = np.unique(played)
    scores = []
    for arm in arms:
        rows = source[played == arm]
        normal = rows.T @ rows + penalty * np.eye(rows.shape[1])
        scores.append(target @ np.linalg.solve(normal, rows.T @ rewards[played == arm]))
    found: np.ndarray = arms[np.argmax(scores, axis=0)]
    return found


def main() -> None:
    """Write the files, or report on the arms of a fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arms", type=Path, help="what `daband fit --out` wrote")
    given = parser.parse_args()
    if given.arms is None:
        write(given.folder)
    else:
        report(given.folder, given.arms)


if __name__ == "__main__":
    main()
