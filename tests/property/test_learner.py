import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from model.learner import Learner
from model.rounds import Domain, Floats, Integers, RewardedRound
from model.state.restore import restore
from model.state.snapshot import state_hash, to_bytes
from tests.support.builders import make_rounds, small_config, teach
from tests.support.strategies import FINITE, repeatable

CONFIG = small_config(episode_length=10, divergence_weight=1.0)
ROUNDS = make_rounds(CONFIG, 24)


@repeatable(25)
@given(st.lists(st.integers(0, len(ROUNDS)), max_size=5))
def test_stream_cut_anywhere_folds_to_the_same_state(cuts):
    whole, parts = Learner(CONFIG, seed=1), Learner(CONFIG, seed=1)
    whole.observe(*ROUNDS)
    edges = [0, *sorted(cuts), len(ROUNDS)]
    for start, end in itertools.pairwise(edges):
        parts.observe(*ROUNDS[start:end])
    assert state_hash(parts) == state_hash(whole)


@repeatable(15)
@given(st.integers(0, len(ROUNDS)), st.booleans())
def test_stopping_and_restoring_anywhere_changes_nothing(stop, with_contexts):
    never, stopped = Learner(CONFIG, seed=1), Learner(CONFIG, seed=1)
    teach(never, ROUNDS)
    teach(stopped, ROUNDS[:stop])
    known = {round_.reference: round_.context for round_ in ROUNDS}
    known |= {-1 - round_.reference: (0.5 - round_.context) for round_ in ROUNDS}

    def lookup(references: Integers) -> Floats:
        return np.array([known[r] for r in references.tolist()], dtype=np.float32).reshape(-1, 4)

    again = restore(to_bytes(stopped, 0, with_contexts), None if with_contexts else lookup)
    teach(again, ROUNDS[stop:])
    assert to_bytes(again, 1) == to_bytes(never, 1)


@repeatable(40)
@given(
    hnp.arrays(np.float32, 4, elements=FINITE),
    st.integers(0, 2),
    st.floats(0.0, 1.0),
    st.floats(2.0**-20, 1.0),
)
def test_any_good_round_leaves_finite_statistics(context, arm, reward, propensity):
    learner = Learner(CONFIG, seed=1)
    learner.observe(RewardedRound(0, Domain.SOURCE, context, arm, reward, propensity))
    theta = learner.statistics.factors().theta
    assert np.isfinite(theta).all()
    assert learner.statistics.counts.tolist() == [int(index == arm) for index in range(3)]


PLAIN = small_config(encoder="identity")
NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3))


@repeatable(60)
@given(arm=st.integers(-2, 5) | st.integers(), reward=NUMBERS, propensity=st.floats())
def test_round_is_folded_whole_or_refused_whole(arm, reward, propensity):
    learner = Learner(PLAIN, seed=1)
    before = state_hash(learner)
    round_ = dataclasses.replace(ROUNDS[0], arm=arm, reward=reward, propensity=propensity)
    try:
        learner.observe(round_)
    except ValueError:
        assert state_hash(learner) == before
    else:
        assert state_hash(learner) != before
        assert 0 <= reward <= 1
        assert 0 <= arm < 3


@pytest.mark.parametrize("flipped", [True, False])
def test_refused_target_rewards_leave_no_trace(flipped):
    # The zero-shot leak test: whatever target rewards say, the state is the same.
    learner, silent = Learner(CONFIG, seed=1), Learner(CONFIG, seed=1)
    teach(silent, ROUNDS)
    for round_ in ROUNDS:
        reward = 1 - round_.reward if flipped else round_.reward
        target = dataclasses.replace(round_, domain=Domain.TARGET, reward=reward)
        with pytest.raises(ValueError, match="target rewards are refused"):
            learner.observe(target)
        teach(learner, [round_])
    assert state_hash(learner) == state_hash(silent)
