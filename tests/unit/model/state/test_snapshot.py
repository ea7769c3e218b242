import dataclasses
import hashlib
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from model.config import digest_of
from model.learner import Learner
from model.rounds import Domain, Floats, Integers, Phase, RewardedRound
from model.state.restore import ContextLookup, restore, restore_policy
from model.state.snapshot import (
    MAGIC,
    SCHEMA_VERSION,
    opened,
    state_hash,
    to_bytes,
)
from model.state.tensor_bytes import Arrays, SnapshotError
from tests.support.builders import make_rounds, small_config, teach

START = len(MAGIC) + 32
Change = Callable[[Arrays, dict[str, Any]], object]
EVERYTHING = {
    "regression_weight": 0.1,
    "prediction_weight": 0.1,
    "divergence_weight": 1.0,
    "consistency_weight": 1.0,
    "distil_head": True,
    "exclusive_rewards": True,
}


def with_pending(**changes: Any) -> Learner:
    """A learner with a trained encoder, a full window and its next update pending."""
    learner = Learner(small_config(**changes), seed=2)
    rounds = make_rounds(learner.config, 68)
    teach(learner, rounds[:63])
    learner.observe(*rounds[63:])
    learner.advance(123)
    assert learner.pending is not None
    return learner


@pytest.fixture(scope="module")
def content():
    return to_bytes(with_pending(**EVERYTHING), version=9)


@pytest.fixture(scope="module")
def tiny():
    """A snapshot of a few thousand bytes."""
    learner = Learner(small_config(arm_count=1, context_shape=(2,), encoder="identity"), seed=0)
    learner.observe(*make_rounds(learner.config, 3))
    return to_bytes(learner, version=1)


def header_of(content: bytes) -> dict[str, Any]:
    body = content[START:]
    length = int.from_bytes(body[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["header"])
    return header


def sealed(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def forged(content: bytes, change: Change) -> bytes:
    """The snapshot with header and arrays changed in place by `change`, under a right checksum."""
    arrays, header = load(content[START:]), header_of(content)
    change(arrays, header)
    return sealed(save(arrays, metadata={"header": json.dumps(header)}))


def lookup_in(rounds: list[RewardedRound]) -> ContextLookup:
    known = {round_.reference: round_.context for round_ in rounds}
    known |= {-1 - round_.reference: (0.5 - round_.context) for round_ in rounds}

    def lookup(references: Integers) -> Floats:
        return np.array([known[r] for r in references.tolist()], dtype=np.float32).reshape(-1, 4)

    return lookup


def test_header_says_what_the_snapshot_is(content):
    header = opened(content)[0]
    assert header.schema_version == SCHEMA_VERSION
    assert (header.version, header.offset, header.episode) == (9, 123, 4)
    assert header.config_digest == small_config(**EVERYTHING).digest()
    assert header.rng["seed"] == 2
    assert "torch" in header.platform


def test_a_field_that_came_later_has_its_default(content):
    def forget(arrays: Arrays, header: dict[str, Any]) -> None:
        del header["config"]["view_dropout"]
        header["config_digest"] = digest_of(header["config"])

    assert restore(forged(content, forget)).config == small_config(**EVERYTHING)


def test_equal_states_give_equal_bytes(content):
    assert to_bytes(with_pending(**EVERYTHING), version=9) == content


def test_restored_learner_has_the_same_bytes(content):
    assert to_bytes(restore(content), version=9) == content


SETUPS = {
    "everything": EVERYTHING,
    "identity": {"encoder": "identity"},
    "scaled": {"encoder": "scaled"},
    "pca": {"encoder": "pca"},
    "scaled-pca": {"encoder": "scaled-pca"},
    "paper": {"objective": "paper", "statistics": "keep", "epsilon": 0.0},
    "per arm": {"context_kind": "per_arm"},
    "held-out contexts": {"holdout": "contexts", "holdout_share": 0.5},
    "images": {"context_shape": (3, 8, 8), "divergence_weight": 1.0},
}


@pytest.mark.parametrize("changes", SETUPS.values(), ids=SETUPS)
def test_restored_learner_continues_like_one_that_never_stopped(changes):
    first = with_pending(**changes)
    second = restore(to_bytes(first, version=1))
    for learner in (first, second):
        learner.train()
        teach(learner, make_rounds(learner.config, 40, seed=1))
    assert to_bytes(first, 2) == to_bytes(second, 2)


def test_continued_phase_survives_a_restore(taught):
    taught.open_target()
    again = restore(to_bytes(taught, 0))
    assert again.phase is Phase.CONTINUED
    for learner in (taught, again):
        learner.observe(*make_rounds(learner.config, 8, seed=1, domain=Domain.TARGET))
    assert state_hash(taught) == state_hash(again)


def test_snapshot_without_contexts_continues_with_those_of_the_log():
    first = with_pending()
    lookup = lookup_in(make_rounds(first.config, 68))
    second = restore(to_bytes(first, version=1, with_contexts=False), lookup)
    for learner in (first, second):
        learner.train()
        teach(learner, make_rounds(learner.config, 40, seed=1))
    assert to_bytes(first, 2) == to_bytes(second, 2)


def test_snapshot_without_contexts_is_smaller():
    learner = with_pending()
    with_contexts, without = to_bytes(learner, 1), to_bytes(learner, 1, with_contexts=False)
    assert not any(name.endswith(".contexts") for name in load(without[START:]))
    assert len(without) < len(with_contexts)


def test_snapshot_without_contexts_and_without_lookup_is_refused(taught):
    with pytest.raises(SnapshotError, match=r"missing content: .*contexts"):
        restore(to_bytes(taught, 0, with_contexts=False))


def test_lookup_of_the_wrong_shape_is_refused(taught):
    with pytest.raises(SnapshotError, match="wrong shape"):
        restore(
            to_bytes(taught, 0, with_contexts=False),
            lambda references: np.zeros((len(references), 5), dtype=np.float32),
        )


def test_lookup_of_values_that_are_not_finite_is_refused(taught):
    with pytest.raises(SnapshotError, match="finite"):
        restore(
            to_bytes(taught, 0, with_contexts=False),
            lambda references: np.full((len(references), 4), np.nan, dtype=np.float32),
        )


def test_restored_policy_scores_as_before(taught):
    contexts = np.random.default_rng(0).standard_normal((20, 4))
    before = taught.policy().score_many(contexts, Domain.TARGET)
    for policy in (restore(to_bytes(taught, 3)).policy(), restore_policy(to_bytes(taught, 3))):
        after = policy.score_many(contexts, Domain.TARGET)
        np.testing.assert_array_equal(after.ucb, before.ucb)


def test_restored_policy_draws_as_before_and_knows_its_version(taught):
    policy = restore_policy(to_bytes(taught, 3, with_contexts=False))
    ids = [str(i) for i in range(20)]
    drawn = policy.select_many(np.ones((20, 4)), Domain.SOURCE, ids).arms
    expected = taught.policy().select_many(np.ones((20, 4)), Domain.SOURCE, ids).arms
    np.testing.assert_array_equal(drawn, expected)
    assert policy.version.version == 3


def test_state_hash_depends_on_the_fold_and_not_on_the_version(taught):
    before = state_hash(taught)
    assert state_hash(restore(to_bytes(taught, 55))) == before
    taught.observe(*make_rounds(taught.config, 1, seed=3))
    assert state_hash(taught) != before


def test_state_hash_is_that_of_the_bytes_of_version_0(taught):
    content = to_bytes(taught, 0, with_contexts=False)
    assert state_hash(taught) == "sha256:" + hashlib.sha256(content).hexdigest()


def test_every_flipped_byte_is_refused(tiny):
    restore(tiny)
    for position in range(len(tiny)):
        for mask in (0x01, 0xFF):
            broken = bytearray(tiny)
            broken[position] ^= mask
            with pytest.raises(SnapshotError):
                restore(bytes(broken))


def test_every_truncation_is_refused(tiny):
    for length in range(len(tiny)):
        with pytest.raises(SnapshotError):
            restore(tiny[:length])


@pytest.mark.parametrize("reader", [restore, restore_policy, opened])
def test_flipped_truncated_or_extended_content_is_refused_by_every_reader(tiny, reader):
    flipped = bytearray(tiny)
    flipped[-1] ^= 1
    for broken in (bytes(flipped), tiny[:-1], tiny + b"\0", b"", pickle.dumps({})):
        with pytest.raises(SnapshotError):
            reader(broken)


@pytest.mark.parametrize("body", [b"", b"\0" * 8, b"\xff" * 64, b"\x02" + b"\0" * 7 + b"{}"])
def test_rubbish_under_a_right_checksum_is_refused(body):
    with pytest.raises(SnapshotError):
        restore(sealed(body))


def test_snapshot_of_another_schema_is_refused_with_its_number(content):
    broken = forged(content, lambda arrays, header: header.update(schema_version=2))
    with pytest.raises(SnapshotError, match="schema version 2"):
        restore(broken)


def test_unchanged_forgery_is_accepted(content):
    # Otherwise the refusals below would prove nothing.
    assert to_bytes(restore(forged(content, lambda arrays, header: None)), 9) == content


def wrongly_accepted(content: bytes, replace: Callable[[Any], Any]) -> list[str]:
    """Names of the arrays whose replacement (None = removal) does not make restoring fail."""
    accepted = []
    for name, array in load(content[START:]).items():
        arrays = load(content[START:])
        value = replace(array)
        arrays.pop(name) if value is None else arrays.update({name: value})
        header = json.dumps(header_of(content))
        try:
            restore(sealed(save(arrays, metadata={"header": header})))
        except SnapshotError:
            continue
        accepted.append(name)
    return accepted


def put_last(name: str, value: float, arrays: Arrays, header: dict[str, Any]) -> None:
    arrays[name].flat[-1] = value


def test_every_missing_tensor_is_refused(content):
    assert wrongly_accepted(content, lambda array: None) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_every_value_that_is_not_finite_is_refused_by_name(content, value):
    names = [name for name, array in load(content[START:]).items() if array.dtype.kind == "f"]
    assert len(names) > 20
    for name in names:
        with pytest.raises(SnapshotError, match=f"not finite: {name}"):
            restore(forged(content, partial(put_last, name, value)))


def test_every_tensor_of_another_length_is_refused(content):
    assert wrongly_accepted(content, lambda array: np.resize(array, array.size + 2)) == []


def test_every_tensor_of_another_type_is_refused(content):
    kinds = {"f": np.float16, "i": np.int32, "b": np.int64}
    assert wrongly_accepted(content, lambda array: array.astype(kinds[array.dtype.kind])) == []


@pytest.mark.parametrize(
    "name", ["extra", "networks.extra", "moments.extra", "window.extra", "pending.extra"]
)
def test_unknown_tensor_is_refused_by_name(content, name):
    with pytest.raises(SnapshotError, match=f"unknown content: {name}"):
        restore(forged(content, lambda a, h: a.update({name: np.zeros(3, dtype=np.float32)})))


UNKNOWN = small_config(**EVERYTHING, encoder="transformer")
UNKNOWN_ENCODER = {"config": json.loads(UNKNOWN.to_json()), "config_digest": UNKNOWN.digest()}

SPOILED: dict[str, tuple[Change, str]] = {
    "A not positive definite": (lambda a, h: a["statistics.gram"].put(0, -10), "positive definite"),
    "A not symmetric": (lambda a, h: a["statistics.gram"].put(1, 0.37), "symmetric"),
    "negative arm count": (lambda a, h: a["statistics.counts"].put(0, -1), "count"),
    "arm out of range": (lambda a, h: a["window.arms"].put(0, 99), "arm"),
    "reward out of range": (lambda a, h: a["window.rewards"].put(0, 1e30), "reward"),
    "propensity below 0": (lambda a, h: a["window.propensities"].put(0, -0.1), "propensit"),
    "other configuration": (lambda a, h: h["config"].update(alpha=0.75), "digest"),
    "bad configuration": (lambda a, h: h["config"].update(alpha=-1.0), "alpha"),
    "unknown encoder": (lambda a, h: h.update(UNKNOWN_ENCODER), "encoder"),
    "unknown phase": (lambda a, h: h.update(phase="late"), "phase"),
    "no seed": (lambda a, h: h["rng"].pop("seed"), "rng|seed|header"),
    "no window count": (lambda a, h: h["counts"].pop("window"), "count|header"),
    "wrong window count": (lambda a, h: h["counts"].update(window=3), "count|length"),
    "more rounds seen than there were": (lambda a, h: a["pending.seen"].put(0, 69), "pending.seen"),
    "rounds seen negative": (lambda a, h: a["pending.seen"].put(0, -1), "pending.seen"),
    "covered a word": (lambda a, h: h["counts"].update(covered_episodes="all"), "covered_episodes"),
    "more covered than full": (
        lambda a, h: h["counts"].update(covered_episodes=5),
        "covered_episodes",
    ),
    "covered less than none": (
        lambda a, h: h["counts"].update(covered_episodes=-2),
        "covered_episodes",
    ),
    "offset a word": (lambda a, h: h.update(offset="far"), "offset|header"),
    "unknown field": (lambda a, h: h.update(colour="red"), "header"),
    "missing field": (lambda a, h: h.pop("platform"), "header"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_content_is_refused_with_the_reason(content, name):
    change, reason = SPOILED[name]
    with pytest.raises(SnapshotError, match=reason):
        restore(forged(content, change))


@pytest.mark.parametrize(
    "name",
    [
        "A not positive definite",
        "other configuration",
        "bad configuration",
        "unknown encoder",
        "no seed",
    ],
)
def test_policy_is_not_restored_from_spoiled_content(content, name):
    with pytest.raises(SnapshotError):
        restore_policy(forged(content, SPOILED[name][0]))


def test_policy_is_not_restored_from_unknown_network_tensors(content):
    with pytest.raises(SnapshotError, match="unknown content"):
        restore_policy(forged(content, lambda a, h: a.update({"networks.extra": np.zeros(3)})))


def test_memory_beyond_the_configured_bounds_is_refused(content):
    config = small_config(**EVERYTHING).changed(rebuild_window=10)

    def shrink(arrays: Arrays, header: dict[str, Any]) -> None:
        header["config"], header["config_digest"] = json.loads(config.to_json()), config.digest()

    with pytest.raises(SnapshotError, match=r"window|bound|length"):
        restore(forged(content, shrink))


def test_snapshot_error_is_a_value_error():
    assert issubclass(SnapshotError, ValueError)
    assert dataclasses.is_dataclass(opened(to_bytes(Learner(small_config(), 0), 0))[0])
