import dataclasses

import numpy as np
import pytest
import torch

from model.bandit.linucb import LinUCB
from model.config import BanditConfig
from model.learner import Learner, Outcome
from model.rounds import Domain, Phase, RewardedRound
from model.simulate import ClusterWorld
from model.state.snapshot import state_hash, to_bytes
from tests.support.builders import (
    accuracy,
    beyond_bounds,
    make_rounds,
    play,
    play_episode,
    small_config,
    teach,
)
from tests.support.worlds import world_config

GOOD = RewardedRound(0, Domain.SOURCE, np.ones(4, dtype=np.float32), 1, 0.5, 0.5)

BAD_ROUNDS = {
    "wrong shape": ("context", {"context": np.ones(5, dtype=np.float32)}),
    "a batch": ("context", {"context": np.ones((2, 4), dtype=np.float32)}),
    "scalar": ("context", {"context": 1.0}),
    "NaN": ("context", {"context": np.array([1, 2, 3, np.nan])}),
    "infinity": ("context", {"context": np.array([1, 2, 3, np.inf])}),
    "beyond float32": ("context", {"context": np.array([1, 2, 3, 1e39])}),
    "words": ("context", {"context": ["a", "b", "c", "d"]}),
    "arm too large": ("arm", {"arm": 3}),
    "arm negative": ("arm", {"arm": -1}),
    "arm between two": ("arm", {"arm": 1.5}),
    "arm by name": ("arm", {"arm": "1"}),
    "arm a bool": ("arm", {"arm": True}),
    "reward above one": ("reward", {"reward": 1.5}),
    "reward negative": ("reward", {"reward": -0.5}),
    "reward NaN": ("reward", {"reward": float("nan")}),
    "reward a bool": ("reward", {"reward": True}),
    "reward NumPy's bool": ("reward", {"reward": np.True_}),
    "reward a word": ("reward", {"reward": "1"}),
    "reward missing": ("reward", {"reward": None}),
    "reward complex": ("reward", {"reward": 1j}),
    "propensity below zero": ("propensity", {"propensity": -0.1}),
    "propensity above one": ("propensity", {"propensity": 1.1}),
    "propensity a word": ("propensity", {"propensity": "1"}),
    "propensity NaN": ("propensity", {"propensity": float("nan")}),
    "target reward": ("reward", {"domain": Domain.TARGET}),
}


def fed(config: BanditConfig, count: int, seed: int = 3) -> Learner:
    learner = Learner(config, seed)
    teach(learner, make_rounds(config, count))
    return learner


@pytest.mark.parametrize(("field", "change"), BAD_ROUNDS.values(), ids=BAD_ROUNDS)
def test_bad_round_is_a_value_error_naming_the_field_and_changes_nothing(taught, field, change):
    before = to_bytes(taught, 0)
    with pytest.raises(ValueError, match=f"^{field}: "):
        taught.observe(dataclasses.replace(GOOD, **change))
    assert to_bytes(taught, 0) == before


@pytest.mark.parametrize(
    "context", [np.ones(3), np.ones((1, 4)), [1, 2, 3, np.nan], [1, 2, 3, 1e39], None]
)
def test_bad_unlabeled_context_is_a_value_error_and_changes_nothing(taught, context):
    before = to_bytes(taught, 0)
    with pytest.raises(ValueError, match=r"^context: "):
        taught.observe_context(1, Domain.TARGET, context)
    assert to_bytes(taught, 0) == before


@pytest.mark.parametrize("domain", ["target", "TARGET", None])
def test_round_of_a_domain_that_is_none_is_refused(learner, domain):
    # As a plain string, "target" equals Domain.TARGET without being it.
    before = state_hash(learner)
    with pytest.raises(ValueError, match=r"^(domain|reward): "):
        learner.observe(dataclasses.replace(GOOD, domain=domain))
    assert state_hash(learner) == before


@pytest.mark.parametrize("reward", [0, 1, 0.25, np.float32(0.25), np.float64(0.25)])
def test_a_reward_may_be_any_real_number(learner, reward):
    learner.observe(dataclasses.replace(GOOD, reward=reward))
    assert learner.window.batch().rewards.tolist() == [float(reward)]


def test_bad_round_in_the_middle_keeps_the_rounds_before_it(learner, config):
    rounds = make_rounds(config, 6)
    with pytest.raises(ValueError, match=r"^reward: "):
        learner.observe(*rounds[:3], dataclasses.replace(GOOD, reward=2.0), *rounds[3:])
    expected = Learner(config, seed=7)
    expected.observe(*rounds[:3])
    assert state_hash(learner) == state_hash(expected)


def test_same_seed_and_rounds_give_the_same_bytes():
    config = small_config(divergence_weight=1.0, consistency_weight=1.0, prediction_weight=0.1)
    assert to_bytes(fed(config, 40), 5) == to_bytes(fed(config, 40), 5)


def test_other_seed_gives_another_state(config):
    assert state_hash(fed(config, 20)) != state_hash(fed(config, 20, seed=4))


def test_folded_statistics_are_those_of_the_encoded_contexts(learner, config):
    rounds = make_rounds(config, 10)
    learner.observe(*rounds)
    contexts = torch.from_numpy(np.stack([round_.context for round_ in rounds]))
    latents = learner.networks.encode(contexts, Domain.SOURCE).numpy()
    arms = np.array([round_.arm for round_ in rounds])
    rewards = np.array([round_.reward for round_ in rounds])
    expected = LinUCB.rebuilt(latents, arms, rewards, 3, config.ridge)
    np.testing.assert_allclose(learner.statistics.A, expected.A, atol=1e-5)
    np.testing.assert_allclose(learner.statistics.b, expected.b, atol=1e-5)


def test_encoder_is_frozen_inside_an_episode(learner, config):
    probe = np.stack([round_.context for round_ in make_rounds(config, 5, seed=9)])
    weights = [value.clone() for value in learner.networks.state_dict().values()]
    for round_ in make_rounds(config, 15):
        learner.observe(round_)
        learner.observe_context(round_.reference, Domain.TARGET, round_.context)
        assert learner.train() is None
        learner.policy().select_many(probe, Domain.TARGET, list("abcde"))
    now = learner.networks.state_dict().values()
    assert all(torch.equal(value, old) for value, old in zip(now, weights, strict=True))
    assert learner.encoder_version == 0


def test_training_falls_due_after_each_episode(learner, config):
    rounds = make_rounds(config, 33)
    learner.observe(*rounds[:15])
    assert not learner.pending
    learner.observe(rounds[15])
    assert learner.pending.data.episode == 1
    learner.train()
    learner.observe(*rounds[16:])
    assert learner.pending.data.episode == 2
    assert learner.encoder_version == 1


def test_pending_update_does_not_see_later_rounds(learner, config):
    rounds = make_rounds(config, 30)
    learner.observe(*rounds[:16])
    pending = learner.pending
    frozen = dataclasses.replace(pending, networks=pending.networks.clone())
    learner.observe(*rounds[16:])
    learner.observe_context(0, Domain.TARGET, rounds[0].context)
    assert learner.pending is pending
    assert len(pending.data.rounds) == 16
    assert pending.run().losses == frozen.run().losses


def test_pending_update_knows_the_contexts_of_each_domain(learner, config):
    for number, round_ in enumerate(make_rounds(config, 16)):
        learner.observe_context(number, Domain.SOURCE, round_.context)
        learner.observe_context(-1 - number, Domain.TARGET, -round_.context)
        learner.observe(round_)
    data = learner.pending.data
    assert data.source.references.tolist() == list(range(16))
    assert data.target.references.tolist() == [-1 - number for number in range(16)]
    assert torch.equal(data.target.contexts, -data.source.contexts)


def test_rounds_folded_while_training_ran_are_in_the_rebuilt_statistics(learner, config):
    rounds = make_rounds(config, 30)
    learner.observe(*rounds[:16])
    outcome = learner.pending.run()
    learner.observe(*rounds[16:])
    learner.conclude(outcome)
    assert learner.statistics.counts.sum() == 30


@pytest.mark.parametrize("window", [200, 20])
@pytest.mark.parametrize("later", [0, 1, 9])
def test_latents_of_the_gate_are_used_again_only_for_the_rounds_they_belong_to(window, later):
    """The state is the same to the bit, whether the update ran here or elsewhere."""
    config = small_config(rebuild_window=window)
    here, elsewhere = Learner(config, seed=7), Learner(config, seed=7)
    rounds = make_rounds(config, 32 + later)
    for learner in (here, elsewhere):
        teach(learner, rounds[:31])
        learner.observe(rounds[31])
        assert learner.pending is not None
        outcome = learner.pending.run()
        learner.observe(*rounds[32:])
        latents = outcome.encoded if learner is here else None
        learner.conclude(dataclasses.replace(outcome, encoded=latents))
    assert here.statistics.counts.sum() == min(window, 32 + later)
    assert state_hash(here) == state_hash(elsewhere)


def test_activated_encoder_has_statistics_rebuilt_under_it(learner, config):
    teach(learner, make_rounds(config, 16))
    built = learner.statistics.A.copy()
    learner.rebuild()
    np.testing.assert_array_equal(learner.statistics.A, built)
    rounds = learner.window.batch()
    latents = learner.networks.encode(rounds.contexts, Domain.SOURCE).numpy()
    expected = LinUCB.rebuilt(latents, rounds.arms, rounds.rewards, 3, config.ridge)
    np.testing.assert_array_equal(learner.statistics.b, expected.b)


def test_paper_rule_keeps_the_statistics_under_a_new_encoder():
    config = small_config(statistics="keep")
    learner = Learner(config, seed=7)
    learner.observe(*make_rounds(config, 16))
    before = learner.statistics.A.copy()
    learner.train()
    assert learner.encoder_version == 1
    np.testing.assert_array_equal(learner.statistics.A, before)


def test_window_bounds_what_is_rebuilt():
    config = small_config(rebuild_window=20)
    assert fed(config, 48).statistics.counts.sum() == 20


def test_conclusion_of_an_episode_that_is_not_pending_is_refused(learner, config):
    learner.observe(*make_rounds(config, 16))
    outcome = learner.train()
    before = state_hash(learner)
    with pytest.raises(ValueError, match=r"^conclude: episode 1 is not pending"):
        learner.conclude(outcome)
    assert state_hash(learner) == before


def refused_then_compared(learner: Learner, outcome: Outcome) -> None:
    encoder = [value.clone() for value in learner.networks.state_dict().values()]
    A, moments, version = learner.statistics.A.copy(), learner.moments, learner.encoder_version
    learner.conclude(outcome)
    now = learner.networks.state_dict().values()
    assert all(torch.equal(value, old) for value, old in zip(now, encoder, strict=True))
    np.testing.assert_array_equal(learner.statistics.A, A)
    assert learner.moments is moments
    assert learner.encoder_version == version
    assert learner.pending is None


def test_diverging_training_leaves_the_last_good_encoder_and_says_why(world):
    config = world_config(
        world,
        latent_size=8,
        hidden_sizes=(32,),
        steps_per_episode=32,
        batch_size=32,
        learning_rate=1e-2,
    )
    learner = Learner(config, seed=1)
    play(learner, world, 8)
    play_episode(learner, world, 8)
    assert learner.pending
    job = dataclasses.replace(learner.pending, config=beyond_bounds(config, learning_rate=1e3))
    outcome = job.run()
    assert not outcome.verdict.is_accepted
    assert outcome.verdict.reasons
    refused_then_compared(learner, outcome)
    assert accuracy(learner, world, Domain.SOURCE) > 0.9


def test_diverging_training_of_the_first_episode_is_refused_too(world):
    config = beyond_bounds(world_config(world, latent_size=8), learning_rate=1e30)
    learner = Learner(config, seed=4)
    play_episode(learner, world, 0)
    outcome = learner.train()
    assert outcome is not None
    assert not outcome.verdict.is_accepted
    assert learner.encoder_version == 0


def test_next_episode_after_a_refusal_trains_again(learner, config):
    learner.observe(*make_rounds(config, 16))
    outcome = learner.pending.run()
    verdict = dataclasses.replace(outcome.verdict, is_accepted=False, reasons=("forced",))
    refused_then_compared(learner, dataclasses.replace(outcome, verdict=verdict))
    learner.observe(*make_rounds(config, 16, seed=1))
    assert learner.train().verdict.is_accepted
    assert learner.encoder_version == 1


def test_target_rewards_fold_in_the_continued_phase(taught):
    taught.open_target()
    before = taught.statistics.counts.sum()
    taught.observe(dataclasses.replace(GOOD, domain=Domain.TARGET))
    assert taught.phase is Phase.CONTINUED
    assert taught.reward_counts[Domain.TARGET] == 1
    assert taught.statistics.counts.sum() == before + 1


def test_target_rounds_are_trained_on_in_the_continued_phase(learner, config):
    learner.open_target()
    learner.observe(*make_rounds(config, 16, domain=Domain.TARGET))
    assert "reward" in learner.train().losses


def test_joint_model_folds_the_context_of_the_chosen_arm():
    config = small_config(context_kind="per_arm", encoder="identity")
    learner = Learner(config, seed=0)
    learner.observe(dataclasses.replace(GOOD, arm=2))
    assert learner.statistics.A.shape == (1, 4, 4)
    np.testing.assert_allclose(learner.statistics.b[0], 0.5 * np.full(4, 0.5), atol=1e-6)


def test_transfer_is_unknown_until_both_domains_were_seen(learner, good_learner):
    assert learner.transfer() is None
    assert good_learner.transfer() is not None


def test_transfer_of_a_good_learner_without_shift_shows_alike_domains(good_learner):
    before = state_hash(good_learner)
    report = good_learner.transfer()
    assert report.proxy_a_distance < 0.8
    assert report.regression_error < 0.3
    assert state_hash(good_learner) == before


def test_offset_only_moves_forward(learner):
    learner.advance(10)
    learner.advance(10)
    with pytest.raises(ValueError, match=r"^offset: "):
        learner.advance(9)
    assert learner.offset == 10


def test_large_context_is_folded_without_harm(learner):
    learner.observe(dataclasses.replace(GOOD, context=np.full(4, 3e38, dtype=np.float32)))
    assert np.isfinite(learner.statistics.A).all()


def test_separable_world_without_shift_is_learned_to_near_zero_regret():
    world = ClusterWorld(seed=2, arm_count=3, size=8, shift=0.0, noise=0.1)
    config = world_config(
        world,
        latent_size=8,
        hidden_sizes=(32,),
        steps_per_episode=32,
        learning_rate=1e-2,
        epsilon=0.0,
        divergence_weight=0.1,
    )
    learner = Learner(config, seed=0)
    regrets = play(learner, world, 15)
    assert regrets[0] > 0.2
    assert max(regrets[-3:]) < 0.05
    assert accuracy(learner, world, Domain.TARGET) > 0.95
