"""Snapshots that earlier builds wrote: they are read, decide as they did, and can be continued."""

import json
from pathlib import Path

import numpy as np
import pytest

from model.state.restore import restore
from tests.oracles.make_snapshot import FOLDER, payload
from tests.support.builders import make_rounds, teach

SNAPSHOTS = sorted(FOLDER.glob("*.bin"))


def test_there_are_snapshots_of_earlier_builds():
    assert SNAPSHOTS


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_old_snapshot_scores_as_it_did(path: Path):
    expected = json.loads(path.with_suffix(".json").read_text())
    for domain, scores in payload(path.read_bytes()).items():
        np.testing.assert_allclose(scores, expected[domain], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_old_snapshot_is_continued(path: Path):
    learner = restore(path.read_bytes())
    assert learner.pending is not None
    version = learner.encoder_version
    teach(learner, make_rounds(learner.config, 40, seed=5))
    assert learner.encoder_version >= version
    assert np.isfinite(learner.statistics.b).all()
