"""`daband fit` on the raw warfarin table against the hand-coded loader: `python -m benchmarks.fit_warfarin`.

Every patient of the source gets an arm at random, and the reward of that arm. One fit reads the file's own
columns, missing values and all; the other reads the loader's numbers. The rest is the same.
"""

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.datasets.folder import DataFolder, default_root, read_csv
from benchmarks.datasets.task import TransferTask
from benchmarks.datasets.warfarin import (
    ARMS,
    FILE,
    ORIGIN,
    has_stable_dose,
    is_member,
    load_warfarin,
)
from service.cli.fit.run import Outputs, fitted
from service.cli.fit.tables import FitTables
from service.settings import Settings

PAIRS = ("site1-site7", "site3-site5", "site7-site1")
COLUMNS = (
    "Gender",
    "Race (OMB)",
    "Age",
    "Height (cm)",
    "Weight (kg)",
    "Indication for Warfarin Treatment",
    "Diabetes",
    "Congestive Heart Failure and/or Cardiomyopathy",
    "Valve Replacement",
    "Aspirin",
    "Simvastatin (Zocor)",
    "Amiodarone (Cordarone)",
    "Carbamazepine (Tegretol)",
    "Phenytoin (Dilantin)",
    "Rifampin or Rifampicin",
    "Current Smoker",
    "CYP2C9 consensus",
    "VKORC1     -1639 consensus",
    "VKORC1 2255 consensus",
    "VKORC1 1173 consensus",
    "VKORC1 1542 consensus",
)
# Codes such as `3` and `3; 8`; one site writes YES where others write 1.
CATEGORICAL = ("Indication for Warfarin Treatment", "Simvastatin (Zocor)")
CONFIG = {"exclusive_rewards": True}

Row = dict[str, str]


def main() -> None:
    """Print the target accuracy of both ways, pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    parser.add_argument("--method", default="daband")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    folder = DataFolder(default_root())
    for pair in asked.pairs:
        for seed in range(asked.seeds):
            raw, coded = (
                accuracy(folder, pair, asked.method, seed, asked.device, is_raw=is_raw)
                for is_raw in (True, False)
            )
            print(f"{pair} seed {seed}: raw {raw:.3f}, hand-coded {coded:.3f}", flush=True)


def accuracy(
    folder: DataFolder, pair: str, method: str, seed: int, device: str, *, is_raw: bool
) -> float:
    """How often the target's arm is the best one."""
    task = load_warfarin(f"warfarin:{pair}", folder)
    source, target = _raw(folder, pair) if is_raw else _coded(task)
    random = np.random.default_rng(seed)
    arms = random.integers(len(ARMS), size=len(source))
    best_source = task.source_rewards.argmax(axis=1)
    for row, arm, best in zip(source, arms, best_source, strict=True):
        row |= {"arm": ARMS[arm], "reward": str(int(arm == best))}
    with TemporaryDirectory() as place:
        paths = [Path(place) / name for name in ("source.csv", "target.csv")]
        for path, rows in zip(paths, (source, target), strict=True):
            _write(path, rows)
        names = CATEGORICAL if is_raw else ()
        wanted = FitTables(
            paths[0],
            paths[1],
            "arm",
            "reward",
            categorical=names,
            method=method,
            seed=seed,
            config=CONFIG,
        )
        out = Path(place) / "arms.csv"
        settings = Settings(log_level="error", device=device)
        print(fitted(wanted, Outputs(out), settings), flush=True)
        with out.open() as stream:
            chosen = [ARMS.index(row["arm"]) for row in csv.DictReader(stream)]
    return float((np.array(chosen) == task.target_rewards.argmax(axis=1)).mean())


def _raw(folder: DataFolder, pair: str) -> tuple[list[Row], list[Row]]:
    """The file's own cells of both domains."""
    patients = [row for row in read_csv(folder.file(FILE, ORIGIN)) if has_stable_dose(row)]
    source, target = (
        [{name: row[name] for name in COLUMNS} for row in patients if is_member(row, domain)]
        for domain in pair.split("-")
    )
    return source, target


def _coded(task: TransferTask) -> tuple[list[Row], list[Row]]:
    """The loader's numbers of both domains."""
    source, target = (
        [{f"x{place}": repr(float(value)) for place, value in enumerate(row)} for row in contexts]
        for contexts in (task.source_contexts, task.target_contexts)
    )
    return source, target


def _write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
