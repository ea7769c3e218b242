import numpy as np
import pytest
from scipy import stats

from model.randomness import (
    KeyedUniforms,
    bytes_key,
    derived_seed,
    draw_keys,
    generator,
    uniform,
)


def test_draws_are_pinned_for_all_time():
    # Logged decisions are redrawn from these: a new value means that old logs no longer replay.
    assert uniform(0, "draw", "decision-1") == 0.8585707937092063
    assert derived_seed(0, "draw", "decision-1") == 7918917850357704675


def test_draw_depends_on_seed_and_on_each_name():
    values = {uniform(0, "a", "b"), uniform(1, "a", "b"), uniform(0, "a", "c"), uniform(0, "ab")}
    assert len(values) == 4


def test_draws_are_uniform():
    draws = [uniform(3, "draw", i) for i in range(20_000)]
    assert 0.0 <= min(draws) < max(draws) < 1.0
    assert stats.kstest(draws, "uniform").pvalue > 1e-3


def test_draws_of_two_seeds_are_not_correlated():
    first, second = ([uniform(seed, "draw", i) for i in range(10_000)] for seed in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.04


def test_generator_is_fresh_at_each_call():
    first, second = generator(5, "x").random(8), generator(5, "x").random(8)
    np.testing.assert_array_equal(first, second)
    assert generator(5, "y").random() != first[0]


def test_global_random_state_plays_no_part():
    np.random.seed(0)
    before = generator(5, "x").random()
    np.random.seed(1)
    assert generator(5, "x").random() == before


def test_many_draws_equal_each_by_itself():
    keys = [0, 1, 2**63, 2**64 - 1, *draw_keys(["decision-1", "ü"]).tolist()]
    uniforms = KeyedUniforms(3, "draw")
    many = uniforms.many(np.array(keys, dtype=np.uint64))
    assert many.tolist() == [uniforms.one(key) for key in keys]
    assert uniforms.many(np.zeros(0, dtype=np.uint64)).shape == (0,)


def test_keyed_draws_are_pinned_for_all_time():
    key, other = draw_keys(["decision-1", "ü"]).tolist()
    assert (key, other) == (6017947981817329313, bytes_key("ü".encode()))
    assert KeyedUniforms(0, "draw").one(key) == 0.8445734258717836


@pytest.mark.parametrize("stride", [1, 2**20, 2**43])
def test_keyed_draws_of_neighbouring_keys_are_uniform_and_independent(stride):
    keys = np.arange(20_000, dtype=np.uint64) * np.uint64(stride)
    first, other = (KeyedUniforms(seed, "draw").many(keys) for seed in (0, 1))
    assert stats.kstest(first, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.03


def test_keyed_draws_depend_on_purpose():
    assert KeyedUniforms(0, "draw").one(5) != KeyedUniforms(0, "shadow").one(5)
