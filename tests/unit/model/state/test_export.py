"""The policy file: the same decisions, nothing that was only for learning, nothing taken on trust."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from model.config import ContextKind
from model.learner import Learner
from model.rounds import Domain
from model.state.export import exported, open_exported
from model.state.manifest import manifest_of
from model.state.snapshot import to_bytes
from model.state.tensor_bytes import SnapshotError, metadata_of
from tests.support.builders import make_rounds, small_config, teach

FACTS = {"experiment": "doses", "arms": ["low", "mid", "high"]}


def taught(**changes: object) -> Learner:
    config = small_config(
        holdout_share=0.5, rebuild_window=200, reservoir_size=200, divergence_weight=0.5, **changes
    )
    learner = Learner(config, seed=7)
    teach(learner, make_rounds(config, 160))
    return learner


SLOW: tuple[dict[str, float], ...] = (
    {},
    {"consistency_weight": 1.0},
    {"consistency_weight": 1.0, "average_decay": 0.9},
    {"average_decay": 0.9, "distil_head": True, "exclusive_rewards": True},
)


@pytest.mark.parametrize("slow", SLOW, ids=str)
@pytest.mark.parametrize("encoder", ["mlp", "identity", "scaled", "pca", "scaled-pca", "pca-mlp"])
@pytest.mark.parametrize("kind", ContextKind)
def test_the_file_decides_bit_for_bit_as_the_learner(encoder, kind, slow):
    learner = taught(encoder=encoder, context_kind=kind, **slow)
    assert learner.confidence is not None
    found = open_exported(exported(to_bytes(learner, 3), FACTS))
    shape = (100, 3, 4) if kind is ContextKind.PER_ARM else (100, 4)
    contexts = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected, got = learner.policy().select_target(contexts), found.policy.select_target(contexts)
    for one, other in zip(
        (*expected[:2], *expected.scores, expected.confidence),
        (*got[:2], *got.scores, got.confidence),
        strict=True,
    ):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert (expected.confidence > 0).all()


def test_the_manifest_says_what_it_is():
    manifest = manifest_of(exported(to_bytes(taught(), 3), FACTS))
    assert (manifest["experiment"], manifest["arms"]) == ("doses", ["low", "mid", "high"])
    assert (manifest["version"], manifest["seed"], manifest["phase"]) == (3, 7, "zero_shot")
    assert manifest["config"]["latent_size"] == 4


def test_nothing_of_learning_is_in_it():
    names = load(exported(to_bytes(taught(**SLOW[-1]), 3), FACTS))
    assert all(
        name.startswith(("networks.encoder.", "statistics.", "confidence.")) for name in names
    )


def changed(content: bytes, **arrays: np.ndarray) -> bytes:
    return save({**load(content), **arrays}, metadata=metadata_of(content))


def test_changed_files_are_refused():
    content = exported(to_bytes(taught(), 3), FACTS)
    open_exported(content)
    manifest = manifest_of(content)
    bad = [
        b"",
        content[: len(content) // 2],
        changed(content, other=np.zeros(1)),
        changed(content, **{"statistics.b": load(content)["statistics.b"] + 1e-9}),
        save(load(content), metadata={"manifest": "{}"}),
        save(load(content), metadata={"manifest": "no JSON"}),
        save(load(content)),
    ]
    changes: list[dict[str, object]] = [{"format_version": 2}, {"config": {}}, {"version": "x"}]
    bad += [
        save(load(content), metadata={"manifest": json.dumps({**manifest, **change})})
        for change in changes
    ]
    for each in bad:
        with pytest.raises(SnapshotError):
            open_exported(each)


def test_a_policy_without_confidence_says_0():
    learner = Learner(small_config(), seed=1)
    found = open_exported(exported(to_bytes(learner, 1), FACTS))
    contexts = np.ones((2, 4), dtype=np.float32)
    assert found.policy.select_target(contexts).confidence.tolist() == [0.0, 0.0]
    scores = learner.policy().score_many(contexts, Domain.TARGET)
    assert found.policy.score_many(contexts, Domain.TARGET).ucb.tolist() == scores.ucb.tolist()
