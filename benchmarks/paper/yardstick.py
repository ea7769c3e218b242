"""The full-information yardstick: a linear model that sees the reward of every arm on the whole source.

`python -m benchmarks.paper.yardstick [--data FOLDER] [--out FILE]` fits a logistic regression where one
arm pays, and a ridge regression for each arm where rewards are graded. Columns are standardised, and the
penalty is chosen on the source alone. The figure is the target reward, as for the bandits.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets.registry import PAIRS, STUDENTS, load, part_of
from benchmarks.datasets.task import TransferTask, as_floats
from benchmarks.paper.jobs import checked_out
from benchmarks.paper.scoring import normalised_reward
from model.rounds import Integers

FOLDS = 5
STRENGTHS = np.logspace(-4, 1, 6)  # of the inverse penalty, C
PENALTIES = np.logspace(0, 5, 11)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit all pairs of vectors and write their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--pairs", nargs="+", default=[*PAIRS, *STUDENTS])
    parser.add_argument("--out", type=Path, default=Path("docs/results/yardstick.json"))
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    found: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "benchmarks.paper.yardstick", *given]),
        "finished_at": "",
        "commit": checked_out(),
        "pairs": {},
    }
    for name in options.pairs:
        task = load(name, options.data)
        reward = normalised_reward(full_information_arms(task), task.test_rewards)
        found["pairs"][name] = {"target": reward, "part": part_of(name).value}
        print(f"{name}: {reward:.3f}", flush=True)
    found["finished_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    options.out.write_text(json.dumps(found, indent=1) + "\n")


def full_information_arms(task: TransferTask) -> Integers:
    """The arm of each test context, from all rewards of the source."""
    contexts, tests = as_floats(task.source_contexts), as_floats(task.test_contexts)
    if task.exclusive_rewards:
        model = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
            {"logisticregression__C": STRENGTHS},
            cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
        )
        model.fit(contexts, task.source_rewards.argmax(axis=1))
        return np.asarray(model.predict(tests))
    ridge = make_pipeline(StandardScaler(), RidgeCV(PENALTIES, alpha_per_target=True))
    ridge.fit(contexts, task.source_rewards)
    return np.asarray(ridge.predict(tests).argmax(axis=1))


if __name__ == "__main__":
    main()
