"""Blocks fold to the bytes of one round after the other: live folding and replay cut differently."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from model.bandit.linucb import LinUCB
from model.encoders.base import FrozenEncoder
from model.encoders.vectors import Identity
from model.learner import Learner
from model.rounds import Domain, Floats, checked_contexts, checked_rows
from model.state.snapshot import to_bytes
from tests.support.builders import block, make_rounds, small_config
from tests.support.strategies import FINITE, repeatable

CONFIGS = {
    kind: small_config(encoder=kind, episode_length=10)
    for kind in ("identity", "scaled", "mlp", "pca")
}
ROUNDS = make_rounds(CONFIGS["mlp"], 48)
MIXED = [
    dataclasses.replace(each, domain=Domain.TARGET) if number % 3 == 0 else each
    for number, each in enumerate(ROUNDS)
]


def opened(kind: str) -> Learner:
    learner = Learner(CONFIGS[kind], seed=1)
    learner.open_target()
    return learner


@pytest.mark.parametrize("kind", CONFIGS)
@repeatable(12)
@given(st.lists(st.integers(1, len(MIXED) - 1), max_size=6, unique=True))
def test_blocks_fold_to_the_bytes_of_single_rounds(kind: str, cuts: list[int]):
    single, blocks = opened(kind), opened(kind)
    single.observe(*MIXED)
    for start, end in itertools.pairwise([0, *sorted(cuts), len(MIXED)]):
        blocks.observe_block(block(MIXED[start:end]))
    assert to_bytes(blocks, 1) == to_bytes(single, 1)


@repeatable(20)
@given(st.integers(1, 70), st.integers(1, 40), st.integers(0, 2**32))
def test_terms_are_added_one_after_the_other(count: int, size: int, seed: int):
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((count, size)).astype(np.float32)
    models, rewards = rng.integers(3, size=count), rng.random(count)
    folded = LinUCB(3, size, 1.0)
    folded.fold(latents, models, rewards)
    gram, b = np.zeros((3, size, size)), np.zeros((3, size))
    for z, model, reward in zip(latents.astype(np.float64), models, rewards, strict=True):
        gram[model] += np.outer(z, z)
        b[model] += reward * z
    assert folded.gram.tobytes() == gram.tobytes()
    assert folded.b.tobytes() == b.tobytes()


@repeatable(30)
@given(st.integers(1, 70), st.integers(1, 130), st.integers(0, 2**32))
def test_the_identity_rounds_a_row_the_same_in_any_block(count: int, size: int, seed: int):
    config = small_config(encoder="identity", context_shape=(size,))
    frozen = FrozenEncoder.of(Identity(config), torch.device("cpu"))
    assert frozen.is_rowwise
    contexts = np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)
    together = frozen.one_by_one(contexts, Domain.SOURCE)
    alone = [frozen.on_host(contexts[row : row + 1], Domain.SOURCE) for row in range(count)]
    assert together.tobytes() == np.concatenate(alone).tobytes()


def test_products_are_taken_one_row_at_a_time():
    calls = []

    def forward(contexts: Floats) -> Floats:
        calls.append(len(contexts))
        return contexts

    frozen = FrozenEncoder(4, torch.device("cpu"), dict.fromkeys(Domain, forward))
    frozen.one_by_one(np.zeros((5, 4), dtype=np.float32), Domain.SOURCE)
    assert calls == [1] * 5


@repeatable(40)
@given(hnp.arrays(np.float32, (5, 4), elements=FINITE))
def test_rows_are_limited_each_by_itself(contexts: Floats):
    alone = [checked_contexts(row, (4,)) for row in contexts]
    assert checked_rows(contexts).tobytes() == np.stack(alone).tobytes()


def test_a_huge_row_does_not_change_the_others():
    contexts = np.array([[1e16, 0.0], [1e30, 1.0]], dtype=np.float32)
    assert checked_rows(contexts)[:, 0].tolist() == pytest.approx([1e16, 1e15])


def test_a_block_without_rounds_changes_nothing():
    learner = Learner(CONFIGS["identity"], seed=1)
    before = to_bytes(learner, 1)
    learner.observe_block(block(ROUNDS[:5]).part(2, 2))
    assert to_bytes(learner, 1) == before


BAD = [
    ("arms", -1),
    ("arms", CONFIGS["identity"].arm_count),
    ("rewards", float("nan")),
    ("rewards", -0.1),
    ("rewards", 1.1),
    ("propensities", float("nan")),
    ("propensities", -0.1),
    ("propensities", 1.1),
    ("contexts", float("inf")),
    ("contexts", float("nan")),
    ("is_target", True),
]


@pytest.mark.parametrize(("column", "value"), BAD)
def test_a_block_with_one_bad_round_changes_nothing(column: str, value: float):
    learner = Learner(CONFIGS["identity"], seed=1)
    before = to_bytes(learner, 1)
    good = block(ROUNDS[:5])
    values = getattr(good, column).copy()
    values[3] = value
    with pytest.raises(ValueError, match=":"):
        learner.observe_block(dataclasses.replace(good, **{column: values}))
    assert to_bytes(learner, 1) == before


def test_latents_that_a_caller_has_go_with_their_rounds_across_the_end_of_an_episode():
    rounds = ROUNDS[:17]  # an episode is 10
    known, unknown = (Learner(CONFIGS["mlp"], seed=2) for _ in range(2))
    contexts = torch.from_numpy(np.stack([each.context for each in rounds]))
    known.observe_block(block(rounds), known.networks.encode(contexts, Domain.SOURCE).numpy())
    unknown.observe_block(block(rounds))
    np.testing.assert_allclose(known.statistics.A, unknown.statistics.A, atol=1e-5)
    np.testing.assert_allclose(known.statistics.b, unknown.statistics.b, atol=1e-5)
