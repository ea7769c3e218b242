import numpy as np
import pytest
import torch
from scipy import stats

from model.memory import COLUMNS, ContextRows, HeldOutRounds, Reservoir, RoundWindow
from model.randomness import uniform
from model.rounds import Domain, Floats, RewardedRound
from tests.support.builders import block, make_rounds, small_config

CPU = torch.device("cpu")


def add_each(held: RoundWindow, rounds: list[RewardedRound]) -> None:
    for round_ in rounds:
        held.add(block([round_]), np.array([False]))


def window(rounds: list[RewardedRound], capacity: int) -> RoundWindow:
    held = RoundWindow(capacity, (4,), CPU)
    if rounds:
        held.add(block(rounds), np.arange(len(rounds)) % 2 == 1)
    return held


def reservoir(count: int, capacity: int = 10, seed: int = 0, name: str = "source") -> Reservoir:
    sample = Reservoir(capacity, (1,), CPU, seed, name)
    references = np.arange(count)
    sample.add(references, references[:, None].astype(np.float32))
    return sample


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 237])
def test_window_holds_the_newest_rounds_oldest_first(count):
    rounds = make_rounds(small_config(), count)
    batch = window(rounds, 100).batch()
    kept = rounds[-100:]
    assert batch.references.tolist() == [round_.reference for round_ in kept]
    assert batch.rewards.tolist() == [round_.reward for round_ in kept]
    assert batch.arms.tolist() == [round_.arm for round_ in kept]
    for context, round_ in zip(batch.contexts, kept, strict=True):
        np.testing.assert_array_equal(context, round_.context)


@pytest.mark.parametrize("count", [0, 99, 100, 237])
def test_window_knows_its_rounds_from_others(count):
    rounds = make_rounds(small_config(), count + 1)
    held = window(rounds[:count], 100)
    batch = held.batch()
    assert held.holds(batch)
    add_each(held, rounds[count:])
    assert not held.holds(batch)


def test_batch_does_not_follow_the_window():
    held = window(make_rounds(small_config(), 10), 10)
    batch = held.batch()
    before = batch.contexts.clone()
    add_each(held, make_rounds(small_config(), 5, seed=1))
    assert torch.equal(batch.contexts, before)


def test_window_marks_domain_and_held_out_rounds():
    rounds = make_rounds(small_config(), 2) + make_rounds(small_config(), 2, 1, Domain.TARGET)
    batch = window(rounds, 10).batch()
    assert batch.is_target.tolist() == [False, False, True, True]
    assert batch.is_held_out.tolist() == [False, True, False, True]


def test_rows_keep_all_columns_together():
    batch = window(make_rounds(small_config(), 6), 10).batch()
    odd = batch.rows(batch.is_held_out)
    assert odd.references.tolist() == batch.references[1::2].tolist()
    assert torch.equal(odd.contexts, batch.contexts[1::2])


@pytest.mark.parametrize("seen", [3, 10, 25])
def test_loaded_window_goes_on_like_the_first(seen):
    rounds = make_rounds(small_config(), 40)
    first, second = window(rounds[:seen], 10), RoundWindow(10, (4,), CPU)
    second.load(first.batch(), first.count)
    for held in (first, second):
        add_each(held, rounds[seen:])
    assert first.batch().references.tolist() == second.batch().references.tolist()
    assert torch.equal(first.batch().contexts, second.batch().contexts)
    assert first.count == second.count


def test_reservoir_keeps_everything_until_it_is_full():
    assert reservoir(7).sample().references.tolist() == list(range(7))


def test_reservoir_stays_bounded_and_keeps_contexts_with_their_references():
    sample = reservoir(500).sample()
    assert len(sample.references) == 10
    assert sample.contexts[:, 0].tolist() == sample.references.tolist()


def test_reservoir_is_a_uniform_sample():
    kept = [reservoir(50, seed=seed).sample().references for seed in range(400)]
    counts = np.bincount(np.concatenate(kept), minlength=50)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_reservoir_depends_on_seed_and_name_alone():
    same, again = reservoir(100).sample(), reservoir(100).sample()
    assert same.references.tolist() == again.references.tolist()
    assert reservoir(100, seed=1).references != reservoir(100, name="target").references


def test_loaded_reservoir_goes_on_like_the_first():
    first, second = reservoir(60), Reservoir(10, (1,), CPU, 0, "source")
    second.load(first.sample(), first.count)
    for reference in range(60, 200):
        for sample in (first, second):
            sample.add(np.array([reference]), np.array([[reference]], dtype=np.float32))
    assert first.references == second.references
    assert torch.equal(first.sample().contexts, second.sample().contexts)


@pytest.mark.parametrize("size", [1, 3, 10, 11, 64])
def test_reservoir_does_not_depend_on_how_contexts_are_cut(size):
    cut = Reservoir(10, (1,), CPU, 0, "source")
    references = np.arange(200)
    for start in range(0, 200, size):
        some = references[start : start + size]
        cut.add(some, some[:, None].astype(np.float32))
    whole = reservoir(200)
    assert cut.references == whole.references
    assert torch.equal(cut.sample().contexts, whole.sample().contexts)


@pytest.mark.parametrize("by_context", [False, True])
@pytest.mark.parametrize("capacity", [10, 50, 200])
@pytest.mark.parametrize("size", [1, 3, 10, 11, 64])
def test_window_does_not_depend_on_how_rounds_are_cut(size, capacity, by_context):
    rounds, held_out = (
        make_rounds(small_config(), 160),
        HeldOutRounds(2, 0.3, by_context=by_context),
    )
    cut, each = RoundWindow(capacity, (4,), CPU), RoundWindow(capacity, (4,), CPU)
    for start in range(160):
        one = block(rounds[start : start + 1])
        each.add(one, held_out.among(start, one.contexts))
    for start in range(0, 160, size):
        some = block(rounds[start : start + size])
        cut.add(some, held_out.among(start, some.contexts))
    assert cut.count == each.count == 160
    found, expected = cut.batch(), each.batch()
    assert torch.equal(found.contexts, expected.contexts)
    for name in COLUMNS:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_window_is_the_same_where_the_host_does_not_share_its_memory(monkeypatch):
    rounds = make_rounds(small_config(), 37)
    shared = window(rounds, 10)
    hold = ContextRows._hold

    def on_a_device(self, values):
        hold(self, values)
        self._on_host = None  # as on a GPU

    monkeypatch.setattr(ContextRows, "_hold", on_a_device)
    apart = window(rounds, 10)
    assert torch.equal(apart.batch().contexts, shared.batch().contexts)
    assert apart.contexts._on_host is None


def distinct(count: int) -> Floats:
    return np.arange(count, dtype=np.float32)[:, None]


@pytest.mark.parametrize("by_context", [False, True])
def test_held_out_share_is_as_asked(by_context):
    found = HeldOutRounds(0, 0.125, by_context=by_context).among(0, distinct(20_000))
    assert found.mean() == pytest.approx(0.125, abs=0.01)


def test_held_out_rounds_are_the_same_in_any_block():
    held_out = HeldOutRounds(3, 0.5, by_context=False)
    one_by_one = [held_out.among(number, distinct(1))[0] for number in range(1, 65)]
    assert held_out.among(1, distinct(64)).tolist() == one_by_one
    assert one_by_one == [uniform(3, "holdout", number) < 0.5 for number in range(1, 65)]


@pytest.mark.parametrize("by_context", [False, True])
def test_no_round_is_held_out_at_share_zero(by_context):
    assert not HeldOutRounds(0, 0.0, by_context=by_context).among(0, distinct(1000)).any()


def test_by_contexts_a_subject_is_always_in_the_same_part():
    held_out, contexts = HeldOutRounds(3, 0.5, by_context=True), distinct(64)
    first = held_out.among(1, contexts)
    assert 0 < first.sum() < 64
    assert np.array_equal(held_out.among(900, contexts[::-1])[::-1], first)
    assert np.array_equal(held_out.among(5, -0.0 * contexts), np.full(64, first[0]))


def test_by_contexts_another_seed_holds_out_other_subjects():
    one, other = (HeldOutRounds(seed, 0.5, by_context=True) for seed in (1, 2))
    assert not np.array_equal(one.among(1, distinct(64)), other.among(1, distinct(64)))
