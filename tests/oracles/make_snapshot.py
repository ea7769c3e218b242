"""Keeps snapshots of today's build, with what their policies say, for later builds to read.

`python -m tests.oracles.make_snapshot NAME` writes `snapshots/NAME.bin`, `snapshots/NAME-ensemble.bin` and
a `.json` beside each. Do this for every release; `tests/unit/model/state/test_old_snapshots.py` reads all that are there.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from model.learner import Learner
from model.rounds import Domain
from model.state.restore import restore_policy
from model.state.snapshot import to_bytes
from tests.support.builders import make_rounds, small_config, teach

FOLDER = Path(__file__).parent / "snapshots"
CONFIGS: dict[str, dict[str, Any]] = {
    "": {"divergence_weight": 1.0, "exclusive_rewards": True},
    "-ensemble": {
        "divergence_weight": 1.0,
        "exclusive_rewards": True,
        "encoder": "committee",
        "tower_count": 4,
        "latent_size": 16,
        "consistency_weight": 1.0,
        "average_decay": 0.99,
        "view_rounds": True,
        "distil_head": True,
        "gate_margin": 1.0,
    },
}
CONTEXTS = np.linspace(-1.0, 1.0, 32, dtype=np.float32).reshape(8, 4)


def payload(content: bytes) -> dict[str, Any]:
    """The scores of some contexts under a snapshot's policy, by domain."""
    policy = restore_policy(content)
    return {domain: policy.score_many(CONTEXTS, domain).ucb.tolist() for domain in Domain}


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for suffix, values in CONFIGS.items():
        content = _made(values)
        name = sys.argv[1] + suffix
        (FOLDER / f"{name}.bin").write_bytes(content)
        (FOLDER / f"{name}.json").write_text(json.dumps(payload(content), indent=1) + "\n")


def _made(values: dict[str, Any]) -> bytes:
    learner = Learner(small_config(**values), seed=2)
    rounds = make_rounds(learner.config, 68)
    teach(learner, rounds[:63])
    learner.observe(*rounds[63:])  # so that an update is pending
    learner.advance(123)
    return to_bytes(learner, version=9)


if __name__ == "__main__":
    main()
