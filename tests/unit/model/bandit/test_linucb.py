import copy
import hashlib

import mpmath
import numpy as np
import pytest
from mabwiser.mab import MAB, LearningPolicy

from model.bandit.linucb import LinUCB, NotPositiveDefiniteError
from model.rounds import Doubles, Floats, Integers

ARMS, SIZE = 3, 5
Stream = tuple[Floats, Integers, Doubles]


@pytest.fixture
def stream() -> Stream:
    rng = np.random.default_rng(11)
    latents = rng.standard_normal((400, SIZE)).astype(np.float32)
    return latents, rng.integers(ARMS, size=400), rng.random(400)


def folded(stream: Stream, ridge: float = 1.0) -> LinUCB:
    state = LinUCB(ARMS, stream[0].shape[1], ridge)
    state.fold(*stream)
    return state


def digest(state: LinUCB) -> str:
    content = state.gram.tobytes() + state.b.tobytes() + state.counts.tobytes()
    return hashlib.sha256(content).hexdigest()


def relative_error(ours: Doubles, theirs: Doubles) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def test_same_statistics_as_mabwiser_on_the_same_stream(stream):
    latents, arms, rewards = stream
    ours = folded(stream, ridge=0.7)
    theirs = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=1.0, l2_lambda=0.7))
    theirs.fit(arms, rewards, latents.astype(np.float64))
    for arm, model in theirs._imp.arm_to_model.items():
        assert relative_error(ours.A[arm], model.A) < 1e-9
        assert relative_error(ours.b[arm], model.Xty) < 1e-9
        assert relative_error(ours.factors().theta[arm], model.beta) < 1e-9


def test_same_upper_confidence_bounds_as_mabwiser(stream):
    latents, arms, rewards = stream
    theirs = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=0.3, l2_lambda=1.0))
    theirs.fit(arms, rewards, latents.astype(np.float64))
    z = latents[:1].astype(np.float64)
    factors = folded(stream).factors()
    ours = factors.theta @ z[0] + 0.3 * np.linalg.norm(factors.inverse_root @ z[0], axis=1)
    np.testing.assert_allclose(ours, list(theirs.predict_expectations(z).values()), rtol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_same_theta_as_a_reference_of_fifty_digits(size):
    rng = np.random.default_rng(size)
    latents, rewards = rng.standard_normal((200, size)).astype(np.float32), rng.random(200)
    state = LinUCB(1, size, 0.5)
    state.fold(latents, np.zeros(200, dtype=np.int64), rewards)
    with mpmath.workdps(50):
        Z, r = mpmath.matrix(latents.astype(float).tolist()), mpmath.matrix(rewards.tolist())
        theta = mpmath.lu_solve(Z.T * Z + mpmath.mpf(0.5) * mpmath.eye(size), Z.T * r)
        reference = np.array([float(value) for value in theta])
    assert relative_error(state.factors().theta[0], reference) < 1e-12


def test_ill_conditioned_theta_stays_close_to_fifty_digits():
    rng = np.random.default_rng(2)
    noise = 1e-3 * rng.standard_normal((300, 3))
    latents = (rng.standard_normal((300, 1)) + noise).astype(np.float32)
    rewards = rng.random(300)
    state = LinUCB(1, 3, 1e-3)
    state.fold(latents, np.zeros(300, dtype=np.int64), rewards)
    with mpmath.workdps(50):
        Z, r = mpmath.matrix(latents.astype(float).tolist()), mpmath.matrix(rewards.tolist())
        theta = mpmath.lu_solve(Z.T * Z + mpmath.mpf(1e-3) * mpmath.eye(3), Z.T * r)
        reference = np.array([float(value) for value in theta])
    assert state.condition_numbers()[0] > 1e5
    assert relative_error(state.factors().theta[0], reference) < 1e-9


@pytest.mark.parametrize("blocks", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_many_folds_keep_the_residual_small(blocks: int):
    rng = np.random.default_rng(0)
    state = LinUCB(2, 3, 1.0)
    for _ in range(blocks):
        latents = np.abs(rng.standard_normal((100_000, 3))).astype(np.float32)
        state.fold(latents, rng.integers(2, size=100_000), rng.random(100_000))
    theta = state.factors().theta
    for A, b, solution in zip(state.A, state.b, theta, strict=True):
        assert np.linalg.norm(A @ solution - b) / np.linalg.norm(b) < 1e-10
    assert state.counts.sum() == blocks * 100_000


def test_trace_counts_every_round_once(stream):
    traces = np.trace(folded(stream, ridge=2.0).A, axis1=1, axis2=2)
    energy = (stream[0].astype(np.float64) ** 2).sum(axis=1)
    expected = np.bincount(stream[1], weights=energy) + 2.0 * SIZE
    np.testing.assert_allclose(traces, expected, rtol=1e-12)


@pytest.mark.parametrize("cuts", [[1, 7, 200], [64, 128, 192, 256, 320, 384], [100, 101, 200, 300]])
def test_batches_of_any_size_fold_to_the_same_bytes(stream, cuts):
    state = LinUCB(ARMS, SIZE, 1.0)
    for cut in np.split(np.arange(400), cuts):
        state.fold(stream[0][cut], stream[1][cut], stream[2][cut])
    assert digest(state) == digest(folded(stream))


def test_sums_are_pinned_for_all_time(stream):
    # Stored snapshots are compared with replays by their bytes.
    assert digest(folded(stream)) == (
        "576381071c41e1e639fcff7c430e87edfa2d1bba9cd5dbe0177260c383f8b9e4"
    )


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33])
def test_statistics_taken_up_again_go_on_with_the_same_bytes(size):
    rng = np.random.default_rng(size)
    latents, models = rng.standard_normal((60, size)).astype(np.float32), rng.integers(2, size=60)
    rewards = rng.random(60)
    whole, first = LinUCB(2, size, 1.0), LinUCB(2, size, 1.0)
    whole.fold(latents, models, rewards)
    first.fold(latents[:25], models[:25], rewards[:25])
    second = LinUCB.of_sums(first.gram, first.b, first.counts, 1.0)
    assert digest(second) == digest(first)
    second.fold(latents[25:], models[25:], rewards[25:])
    assert digest(second) == digest(whole)


def test_a_copy_goes_on_by_itself(stream):
    state = folded(stream)
    before = digest(state)
    copied = copy.deepcopy(state)
    assert digest(copied) == before
    copied.fold(*stream)
    assert digest(state) == before
    state.fold(*stream)
    assert digest(copied) == digest(state) != before


def test_sums_that_are_read_are_the_readers_own(stream):
    state = folded(stream)
    before = digest(state)
    state.gram[:], state.b[:], state.A[:] = 0.0, 0.0, 0.0
    assert digest(state) == before


def test_folds_do_not_need_arrays_of_their_own(stream):
    frozen = tuple(column.copy() for column in stream)
    for column in frozen:
        column.flags.writeable = False
    assert digest(folded(frozen)) == digest(folded(stream))


def test_rebuilding_equals_folding(stream):
    latents, arms, rewards = stream
    built, state = LinUCB.rebuilt(latents, arms, rewards, ARMS, 1.0), folded(stream)
    np.testing.assert_allclose(built.A, state.A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(built.b, state.b, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(built.counts, state.counts)


def test_condition_number_of_a_known_matrix():
    state = LinUCB(2, 2, 0.5)
    state.fold(np.array([[2.0, 0.0]], dtype=np.float32), np.array([1]), np.array([1.0]))
    np.testing.assert_allclose(state.condition_numbers(), [1.0, 9.0])


def test_width_is_that_of_the_inverse(stream):
    state = folded(stream)
    z = np.ones(SIZE)
    widths = np.linalg.norm(state.factors().inverse_root @ z, axis=1)
    np.testing.assert_allclose(widths**2, z @ np.linalg.inv(state.A) @ z, rtol=1e-12)


def test_published_factors_do_not_move_with_later_folds(stream):
    state = folded(stream)
    before = state.factors()
    theta = before.theta.copy()
    state.fold(*stream)
    state.factors()
    np.testing.assert_array_equal(before.theta, theta)


def test_factors_follow_every_fold_of_every_arm():
    state = LinUCB(2, 2, 1.0)
    for arm in (0, 1, 0):
        state.fold(np.ones((1, 2), dtype=np.float32), np.array([arm]), np.array([1.0]))
        state.factors()
    expected = np.linalg.solve(state.A, state.b[..., None])[..., 0]
    np.testing.assert_allclose(state.factors().theta, expected, rtol=1e-12)


def test_matrix_that_is_not_positive_definite_is_refused():
    gram = np.array([[[0.0, 3.0], [3.0, 0.0]]])
    state = LinUCB.of_sums(gram, np.zeros((1, 2)), np.ones(1, dtype=np.int64), ridge=1.0)
    with pytest.raises(NotPositiveDefiniteError):
        state.factors()
