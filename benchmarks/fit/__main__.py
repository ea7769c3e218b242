"""Compare the arms of two fits pair by pair: one reads raw tables, the other a loader's numbers.

Every row of the source gets an arm at random, and the reward of that arm. The rest is the same.
"""

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.datasets.folder import DataFolder, default_root
from benchmarks.datasets.students import NAMES as STUDENT_PAIRS
from benchmarks.fit.students import students
from benchmarks.fit.task import FitTask, Row
from benchmarks.fit.warfarin import warfarin
from service.cli.fit.run import Outputs, fitted
from service.cli.fit.tables import FitTables
from service.columns.seen import ColumnTypes
from service.settings import Settings

# The rules of columns were chosen on other sites: 4, 6, 8, 11, 12, 14, 15, 17, 18, 19 and 21.
PAIRS = ("site1-site7", "site3-site5", "site7-site1", *STUDENT_PAIRS)
CONFIG = {"exclusive_rewards": True}
WITHIN = 0.02  # what the raw table may lose on average


def main() -> None:
    """Print the target accuracy of both ways, and the mean and spread of the paired difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    parser.add_argument("--method", default="daband")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    # Updates give the same bits in a thread, and no process has to start.
    settings = Settings(log_level="error", device=asked.device, training="thread")
    folder = DataFolder(default_root())
    for pair in asked.pairs:
        task = (students if pair in STUDENT_PAIRS else warfarin)(pair, folder)
        found = []
        for seed in asked.seeds:
            ways = [
                accuracy(task, asked.method, seed, settings, is_raw=is_raw)
                for is_raw in (True, False)
            ]
            found.append(ways)
            print(f"{pair} seed {seed}: raw {ways[0]:.3f}, hand-coded {ways[1]:.3f}", flush=True)
        print(summary(pair, np.array(found)), flush=True)


def summary(pair: str, found: np.ndarray) -> str:
    """One line of accuracies (seeds, 2)."""
    raw, coded = found.mean(axis=0)
    differences = found[:, 0] - found[:, 1]
    spread = differences.std(ddof=1) if len(found) > 1 else float("nan")
    word = "holds" if differences.mean() >= -WITHIN else "MISSED"
    return (
        f"{pair}: raw {raw:.3f}, hand-coded {coded:.3f}, difference {differences.mean():+.3f} "
        f"(spread {spread:.3f}, {len(found)} seeds): {word}"
    )


def accuracy(task: FitTask, method: str, seed: int, settings: Settings, *, is_raw: bool) -> float:
    """How often the target's arm is the best one."""
    source, target = task.raw if is_raw else task.coded
    chosen = np.random.default_rng(seed).integers(len(task.arms), size=len(source))
    rounds = [
        row | {"(arm)": task.arms[arm], "(reward)": str(int(arm == best))}
        for row, arm, best in zip(source, chosen, task.best[0], strict=True)
    ]
    with TemporaryDirectory() as place:
        paths = [Path(place) / name for name in ("source.csv", "target.csv")]
        for path, rows in zip(paths, (rounds, target), strict=True):
            _write(path, rows)
        wanted = FitTables(
            paths[0],
            paths[1],
            "(arm)",
            "(reward)",
            types=ColumnTypes(categorical=task.categorical if is_raw else ()),
            method=method,
            seed=seed,
            config=CONFIG,
        )
        out = Path(place) / "arms.csv"
        print(fitted(wanted, Outputs(out), settings), flush=True)
        with out.open() as stream:
            arms = [task.arms.index(row["arm"]) for row in csv.DictReader(stream)]
    return float((np.array(arms) == task.best[1]).mean())


def _write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
