"""Folding: what each kind of event means, and what an event must wait for."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from model.config import ContextKind
from model.learner import Learner
from model.rounds import Domain, Phase
from model.state.restore import restore_networks
from model.state.snapshot import state_hash, to_bytes
from model.training.schedule import Cause, NextUpdate
from service.codec.decisions import DecisionPayload
from service.experiment_spec import ExperimentSpec
from service.learning.fold import Folder, conclusion, next_update, training_event
from service.records import EventKind, StoredEvent
from tests.support.api import DOSES

SPEC = ExperimentSpec(
    name="doses",
    arms=("low", "mid", "high"),
    context_kind=ContextKind.SHARED,
    context_shape=(4,),
    seed=7,
    config={**DOSES["config"], "gate_margin": 1.0},
)
EPISODE = DOSES["config"]["episode_length"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(offset: int, kind: EventKind, key: str = "", payload: bytes = b"") -> StoredEvent:
    """An event that says no more than this."""
    key = key or f"{kind}-{offset}"
    return StoredEvent(
        "x", offset, kind, key, payload, None, None, None, None, None, None, None, NOW
    )


def decision(offset: int, domain: Domain = Domain.SOURCE) -> StoredEvent:
    context = np.random.default_rng(offset).standard_normal(4).astype("<f4")
    arm = SPEC.arms[offset % 3]
    content = DecisionPayload(SPEC.arms, (0.2, 0.3, 0.5), (0.0,) * 3, (0.0,) * 3, encoder_version=0)
    made = event(offset, EventKind.DECISION, payload=msgspec.json.encode(content))
    return replace(made, context=context.tobytes(), domain=domain, arm=arm)


def rounds(first: int, count: int) -> Iterator[StoredEvent]:
    """Decisions, each with its reward behind it."""
    for offset in range(first, first + 2 * count, 2):
        made = decision(offset)
        rewarded = event(offset + 1, EventKind.REWARD, made.event_key)
        yield made
        yield replace(rewarded, reward=float(offset % 4 == 1), decision=made)


def folder() -> Folder:
    return Folder(Learner(SPEC.bandit_config(), SPEC.seed), SPEC)


def with_pending() -> tuple[Folder, int]:
    """A folder that has an update pending, and the next offset."""
    made = folder()
    assert made.fold(list(rounds(1, EPISODE))) == []
    assert made.learner.pending is not None
    return made, 2 * EPISODE + 1


def end_of(episode: int, offset: int, kind: EventKind = EventKind.ACTIVATION) -> StoredEvent:
    return event(offset, kind, payload=json.dumps({"episode": episode}).encode())


def test_decisions_are_kept_as_contexts_and_rewards_are_folded():
    made = folder()
    made.fold([*rounds(1, 3), decision(7, Domain.TARGET)])
    assert made.learner.offset == 7
    assert made.learner.reward_counts == {Domain.SOURCE: 3, Domain.TARGET: 0}
    assert {domain: kept.count for domain, kept in made.learner.contexts.items()} == {
        Domain.SOURCE: 3,
        Domain.TARGET: 1,
    }


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_state_does_not_depend_on_how_the_log_is_cut(size: int):
    log = list(rounds(1, EPISODE + 5))
    whole, cut = folder(), folder()
    whole.fold(log)
    for start in range(0, len(log), size):
        cut.fold(log[start : start + size])
    assert state_hash(whole.learner) == state_hash(cut.learner)


def test_an_activation_waits_for_its_encoder():
    made, offset = with_pending()
    after = decision(offset + 1)
    left = made.fold([end_of(1, offset), after])
    assert [each.offset for each in left] == [offset, offset + 1]
    assert made.learner.offset == offset - 1
    pending = made.learner.pending
    assert pending is not None
    made.provide_outcome(pending.run())
    assert made.fold(left) == []
    assert (made.learner.encoder_version, made.learner.pending) == (1, None)


def test_a_refusal_needs_nothing_and_changes_no_encoder():
    made, offset = with_pending()
    assert made.fold([end_of(1, offset, EventKind.REFUSAL)]) == []
    assert (made.learner.encoder_version, made.learner.pending) == (0, None)


def test_the_end_of_an_update_that_was_given_up_says_nothing():
    made, offset = with_pending()
    before = made.learner.pending
    assert made.fold([end_of(9, offset), end_of(9, offset + 1, EventKind.REFUSAL)]) == []
    assert made.learner.pending is before
    assert made.learner.offset == offset + 1


def test_a_restore_waits_for_its_networks_and_gives_up_the_pending_update():
    made, offset = with_pending()
    first = to_bytes(folder().learner, 1)
    asked = event(offset, EventKind.RESTORE, payload=b'{"version": 1}')
    assert made.fold([asked]) == [asked]
    made.provide_networks(offset, *restore_networks(first))
    assert made.fold([asked]) == []
    assert (made.learner.encoder_version, made.learner.pending) == (1, None)
    assert made.learner.reward_counts[Domain.SOURCE] == EPISODE


def test_networks_of_another_restore_are_not_used():
    made = folder()
    made.provide_networks(7, *restore_networks(to_bytes(folder().learner, 1)))
    asked = event(8, EventKind.RESTORE, payload=b'{"version": 1}')
    assert made.fold([asked]) == [asked]


def test_the_phase_opens_the_target():
    made = folder()
    made.fold([event(1, EventKind.PHASE, payload=b'{"phase": "continued", "best_reward": 1.0}')])
    assert made.learner.phase is Phase.CONTINUED


def test_a_reward_without_its_decision_is_a_bug():
    with pytest.raises(ValueError, match="offset 1 has no decision"):
        folder().fold([replace(event(1, EventKind.REWARD), reward=1.0)])


def test_a_conclusion_says_which_episode_it_ends_and_how():
    made, _ = with_pending()
    assert made.learner.pending is not None
    content = conclusion("x", made.learner.pending.run())
    assert content.kind is EventKind.ACTIVATION
    assert content.event_key == "x:1"
    assert json.loads(content.payload)["episode"] == 1


def begun(offset: int, cause: Cause = Cause.REWARDS, covers: int = 1) -> StoredEvent:
    made = training_event("x", offset - 1, NextUpdate(cause, covers))
    return event(offset, EventKind.TRAINING, made.event_key, made.payload)


def behind(episodes: int) -> tuple[Folder, int]:
    """A folder without a pending update that so many are due for, and the next offset."""
    made = folder()
    made.fold([*rounds(1, EPISODE * (episodes + 1))])
    offset = 2 * EPISODE * (episodes + 1) + 1
    made.fold([end_of(1, offset, EventKind.REFUSAL)])
    assert (made.learner.pending, made.learner.progress.due_updates) == (None, episodes)
    return made, offset + 1


def test_a_training_begins_an_update_that_is_due():
    made, offset = behind(2)
    assert made.fold([begun(offset)]) == []
    pending = made.learner.pending
    assert pending is not None
    assert (pending.data.episode, len(pending.data.rounds)) == (2, 3 * EPISODE)
    assert made.learner.progress.due_updates == 1


def test_a_training_that_a_full_episode_was_faster_than_begins_nothing():
    made, offset = behind(1)
    made.fold([*rounds(offset, EPISODE)])
    assert (made.learner.episode, made.learner.progress.due_updates) == (2, 1)
    assert made.fold([begun(offset + 2 * EPISODE)]) == []
    assert (made.learner.episode, made.learner.progress.due_updates) == (2, 1)


def test_a_request_during_an_update_is_not_forgotten():
    made, offset = with_pending()
    made.fold([begun(offset, Cause.REQUEST, 0), end_of(1, offset + 1, EventKind.REFUSAL)])
    assert next_update(made.learner, {}) == NextUpdate(Cause.REWARDS, 1)


def test_a_log_without_trainings_folds_as_it_always_did():
    """Updates that were passed over by an earlier build begin by no event of its log."""
    made, offset = behind(3)
    made.fold([*rounds(offset, EPISODE - 1)])
    assert made.learner.pending is None
    made.fold([*rounds(offset + 2 * EPISODE - 2, 1)])
    assert made.learner.episode == 2


@pytest.mark.parametrize("size", [1, 7, 100])
def test_trainings_do_not_depend_on_how_the_log_is_cut(size: int):
    first = 2 * EPISODE * 3 + 1
    log = [
        *rounds(1, EPISODE * 3),
        end_of(1, first, EventKind.REFUSAL),
        begun(first + 1),
        *rounds(first + 2, 3),
        begun(first + 8, Cause.REQUEST, 0),
        end_of(2, first + 9, EventKind.REFUSAL),
        begun(first + 10),
    ]
    whole, cut = folder(), folder()
    assert whole.fold(log) == []
    for start in range(0, len(log), size):
        assert cut.fold(log[start : start + size]) == []
    assert whole.learner.episode == 3
    assert state_hash(whole.learner) == state_hash(cut.learner)


def test_a_conclusion_says_how_many_contexts_the_update_had():
    made = folder()
    made.fold([decision(1, Domain.TARGET), *rounds(2, EPISODE)])
    pending = made.learner.pending
    assert pending is not None
    payload = json.loads(conclusion("x", pending.run(), contexts=pending.data.contexts).payload)
    assert payload["contexts"] == {"source": EPISODE, "target": 1}
    made.learner.dismiss(1)
    assert next_update(made.learner, payload) is None
    made.fold([decision(offset, Domain.TARGET) for offset in range(100, 100 + EPISODE)])
    assert next_update(made.learner, payload) == NextUpdate(Cause.TARGET_CONTEXTS, 0)
    del payload["contexts"]  # an earlier build does not say it
    assert next_update(made.learner, payload) is None


def test_no_request_has_the_key_of_a_training_by_the_trainer():
    assert training_event("x", 5, NextUpdate(Cause.REWARDS, 1)).event_key == "x/5"
