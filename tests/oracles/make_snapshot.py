"""Keeps a snapshot of today's build, with what its policy says, for later builds to read.

`python -m tests.oracles.make_snapshot NAME` writes `snapshots/NAME.bin` and `snapshots/NAME.json`. Do this for every release;
`tests/unit/model/state/test_old_snapshots.py` reads all that are there.
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
CONTEXTS = np.linspace(-1.0, 1.0, 32, dtype=np.float32).reshape(8, 4)


def said(content: bytes) -> dict[str, Any]:
    """The scores of some contexts under a snapshot's policy, by domain."""
    policy = restore_policy(content)
    return {domain: policy.score_many(CONTEXTS, domain).ucb.tolist() for domain in Domain}


def main() -> None:
    """Write both files."""
    learner = Learner(small_config(divergence_weight=1.0, exclusive_rewards=True), seed=2)
    rounds = make_rounds(learner.config, 68)
    teach(learner, rounds[:63])
    learner.observe_many(rounds[63:])  # so that an update is pending
    learner.advance(123)
    content = to_bytes(learner, version=9)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{sys.argv[1]}.bin").write_bytes(content)
    (FOLDER / f"{sys.argv[1]}.json").write_text(json.dumps(said(content), indent=1) + "\n")


if __name__ == "__main__":
    main()
