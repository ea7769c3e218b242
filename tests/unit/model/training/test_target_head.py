from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from model.bandit.linucb import Factors, LinUCB
from model.config import BanditConfig
from model.learner import Learner
from model.rounds import Domain
from model.state.latent_map import latent_map
from model.state.snapshot import state_hash
from model.training.networks import Networks
from model.training.target_head import Distilled, HeadOutput
from tests.support.builders import calibrated_on, make_rounds, small_config

ARMS, SIZE, RIDGE = 3, 4, 0.5
DISTILLED: dict[str, Any] = {"distil_head": True, "exclusive_rewards": True}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def config(**changes: Any) -> BanditConfig:
    return small_config(**{**DISTILLED, "gate_margin": 1.0, "gate_rank": 1.0, **changes})


def with_update_due(**changes: Any) -> Learner:
    learner = Learner(config(**changes), seed=7)
    for number, round_ in enumerate(make_rounds(learner.config, 16)):
        learner.observe_context(-1 - number, Domain.TARGET, -round_.context)
        learner.observe(round_)
    assert learner.pending is not None
    return learner


def expecting(latents: Tensor, rewards: Tensor) -> HeadOutput:
    """What an ensemble says, whose scores are linear in nothing."""
    return HeadOutput(latents, rewards, torch.zeros_like(rewards), is_linear=False)


def scoring(latents: Tensor, theta: Tensor, offsets: Tensor, sharpness: float = 1.0) -> HeadOutput:
    """What a head of one member says."""
    scores = latents @ theta.T + offsets
    return HeadOutput(latents, (sharpness * scores).softmax(dim=1), scores, is_linear=True)


def test_what_is_linear_in_the_latents_is_found():
    theta, distilled = numbers(ARMS, SIZE, seed=1), Distilled(SIZE, ARMS)
    latents = numbers(50, SIZE, seed=2), numbers(7, SIZE, seed=3)
    groups = [expecting(z, z @ theta.T) for z in latents]
    distilled.fit(groups, taught=57, ridge=1e-9)
    torch.testing.assert_close(distilled.theta, theta)
    assert int(distilled.taught) == 57


def test_few_target_contexts_weigh_as_much_as_many_rounds():
    rounds, target, distilled = torch.ones(900, 1), torch.ones(3, 1), Distilled(1, 1)
    groups = [expecting(rounds, torch.zeros(900, 1)), expecting(target, torch.ones(3, 1))]
    distilled.fit(groups, taught=900, ridge=1e-9)
    assert float(distilled.theta) == pytest.approx(0.5)


def test_a_theta_of_scores_chooses_as_they_do_where_one_of_rewards_does_not():
    latents = functional.normalize(numbers(400, SIZE, seed=2))
    theta = numbers(ARMS, SIZE, seed=1)
    output = scoring(latents, theta, torch.zeros(ARMS), sharpness=8.0)
    by_scores, by_rewards = Distilled(SIZE, ARMS), Distilled(SIZE, ARMS)
    by_scores.fit([output], taught=400, ridge=1e-9)
    by_rewards.fit([replace(output, is_linear=False)], taught=400, ridge=1e-9)
    chosen = [(latents @ each.theta.T).argmax(dim=1) for each in (by_scores, by_rewards)]
    assert torch.equal(chosen[0], output.scores.argmax(dim=1))
    assert not torch.equal(chosen[1], output.scores.argmax(dim=1))


def test_a_theta_of_scores_expects_what_the_head_does_of_the_arms_it_chooses():
    latents = functional.normalize(numbers(300, SIZE, seed=2) + 2.0)
    output = scoring(latents, numbers(ARMS, SIZE, seed=1), numbers(ARMS, seed=3), sharpness=8.0)
    groups = [
        replace(
            output,
            **{name: getattr(output, name)[rows] for name in ("latents", "expected", "scores")},
        )
        for rows in (slice(0, 290), slice(290, 300))
    ]
    distilled = Distilled(SIZE, ARMS)
    distilled.fit(groups, taught=300, ridge=1e-9)
    found = expected = torch.zeros(())
    for group in groups:
        best, arms = (group.latents @ distilled.theta.T).max(dim=1)
        found = found + best.mean()
        expected = expected + group.expected.gather(1, arms[:, None]).mean()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_reward_head_with_equal_arms_expects_the_same_of_all(offset):
    latents = functional.normalize(numbers(50, SIZE, seed=2) + 2.0)
    output = scoring(latents, torch.zeros(ARMS, SIZE).double(), torch.full((ARMS,), offset))
    distilled = Distilled(SIZE, ARMS)
    distilled.fit([output], taught=50, ridge=1e-9)
    assert distilled.theta.isfinite().all()
    assert (distilled.theta == distilled.theta[:1]).all()
    assert float((latents @ distilled.theta[0]).mean()) == pytest.approx(1 / ARMS, rel=0.05)


@pytest.mark.parametrize(("taught", "seen"), [(0, 60), (45, 60), (60, 60), (1045, 1060)])
def test_the_reward_head_replaces_rewards_it_was_trained_on_and_no_later_ones(taught, seen):
    latents, rewards = numbers(60, SIZE), numbers(60, seed=4)
    models = torch.arange(60) % ARMS
    distilled = Distilled(SIZE, ARMS)
    distilled.theta.copy_(numbers(ARMS, SIZE, seed=5))
    distilled.taught.fill_(taught)
    shift = distilled.shift(latents, models, rewards, seen, RIDGE)
    known = 60 - (seen - taught)
    output = (latents * distilled.theta[models]).sum(dim=1)
    heard = torch.cat([output[:known], rewards[known:]])
    for model, theta in enumerate(distilled.theta):
        own = models == model
        z = latents[own]
        A = RIDGE * torch.eye(SIZE, dtype=torch.float64) + z.T @ z
        found = torch.linalg.solve(A, z.T @ rewards[own] + shift[model])
        expected = torch.linalg.solve(A, z.T @ heard[own] + RIDGE * theta)
        torch.testing.assert_close(found, expected)
        if known == 60:
            torch.testing.assert_close(found, theta)


@pytest.mark.parametrize(
    "changes",
    [
        {"distil_head": False},
        {"exclusive_rewards": False},
        {"encoder": "identity"},
        {"objective": "paper"},
        {"arm_count": 1},
        {"context_kind": "per_arm"},
    ],
)
def test_there_is_none_where_no_head_learns_of_several_arms_at_once(changes):
    assert Networks.initial(config(**changes), 0, torch.device("cpu")).distilled is None
    assert Networks.initial(config(), 0, torch.device("cpu")).distilled is not None


def test_the_target_is_decided_by_what_the_head_says():
    learner = with_update_due()
    assert learner.train() is not None
    networks, factors = learner.networks, learner.statistics.factors()
    assert networks.distilled is not None
    assert int(networks.distilled.taught) == 16
    np.testing.assert_allclose(factors.target_theta, networks.distilled.theta.numpy(), atol=1e-9)
    contexts = learner.contexts[Domain.TARGET].sample().contexts
    output = networks.served_head(networks.encode(contexts, Domain.TARGET)).detach().numpy()
    means = learner.policy().score_many(contexts.numpy(), Domain.TARGET).mean
    errors = [
        float(((found - output) ** 2).mean()) for found in (means, np.full_like(output, 1 / 3))
    ]
    assert errors[0] < 0.5 * errors[1]


def test_the_source_is_decided_as_ever():
    with_head, without = with_update_due(), with_update_due(distil_head=False)
    for learner in (with_head, without):
        learner.train()
    contexts = without.contexts[Domain.TARGET].sample().contexts.numpy()
    scores = [each.policy().score_many(contexts, Domain.SOURCE) for each in (with_head, without)]
    for name in ("mean", "bonus", "ucb"):
        np.testing.assert_array_equal(getattr(scores[0], name), getattr(scores[1], name))
    means = [
        each.policy().score_many(contexts, Domain.TARGET).mean for each in (with_head, without)
    ]
    assert np.abs(means[0] - means[1]).max() > 0.01


def test_rewards_that_came_during_training_count():
    learner = with_update_due()
    assert learner.pending is not None
    outcome = learner.pending.run()
    at_once = with_update_due()
    at_once.conclude(outcome)
    later = make_rounds(learner.config, 9, seed=1)
    learner.observe(*later)
    learner.conclude(outcome)
    at_once.observe(*later)
    found, expected = (each.statistics.factors().target_theta for each in (learner, at_once))
    np.testing.assert_allclose(found, expected, atol=1e-6)  # rounds are encoded one by one there
    assert outcome.networks.distilled is not None
    assert np.abs(found - outcome.networks.distilled.theta.numpy()).max() > 0.01


@pytest.fixture
def judged() -> Learner:
    """A learner with enough held out to judge its target by."""
    learner = Learner(config(holdout_share=0.5, rebuild_window=200, reservoir_size=200), seed=7)
    for number, round_ in enumerate(make_rounds(learner.config, 160)):
        learner.observe_context(-1 - number, Domain.TARGET, -round_.context)
        learner.observe(round_)
        learner.train()
    return learner


def for_arm_one(learner: Learner) -> Factors:
    """Factors whose target θ rates the second arm best or worst."""
    theta = np.zeros((ARMS, SIZE))
    theta[1] = 1000.0
    return replace(learner.statistics.factors(), own_target_theta=theta)


def best_arms(learner: Learner, contexts: Tensor, domain: Domain, factors: Factors) -> list[int]:
    latents = learner.networks.encode(contexts, domain).double().numpy()
    arms: list[int] = (latents @ factors.theta_of(domain).T).argmax(axis=1).tolist()
    return arms


def test_the_target_is_trusted_by_its_theta(judged: Learner):
    held_out = calibrated_on(judged)
    rounds = judged.window.batch()
    chosen = torch.from_numpy(np.flatnonzero(rounds.is_held_out))
    latents = judged.networks.encode(rounds.contexts[chosen], Domain.SOURCE).double().numpy()
    expected = latents @ judged.statistics.factors().target_theta.T
    np.testing.assert_allclose(held_out.predicted, expected, atol=1e-6)


def test_the_target_is_judged_by_its_theta(judged: Learner):
    job, factors = judged.judging(), for_arm_one(judged)
    assert job is not None
    source = best_arms(judged, job.held_out.contexts, Domain.SOURCE, factors)
    target = best_arms(judged, job.target, Domain.TARGET, factors)
    shares = [np.bincount(arms, minlength=ARMS) / len(arms) for arms in (source, target)]
    distance = np.abs(shares[0] - shares[1]).sum() / 2
    assert replace(job, factors=factors).run().signs.share_distance == pytest.approx(distance)
    assert job.run().signs.share_distance != pytest.approx(distance)


def test_the_target_is_shown_by_its_theta(judged: Learner, monkeypatch: pytest.MonkeyPatch):
    before, factors = judged.statistics.factors(), for_arm_one(judged)
    monkeypatch.setattr(judged.statistics, "factors", lambda: factors)
    shown = latent_map(judged)
    for domain in Domain:
        contexts = judged.contexts[domain].sample().contexts
        arms = best_arms(judged, contexts, domain, factors)
        assert shown.arms[shown.is_target == (domain is Domain.TARGET)].tolist() == arms
    assert arms != best_arms(judged, contexts, Domain.TARGET, before)


def test_an_update_without_steps_teaches_nothing():
    learner = with_update_due(steps_per_episode=0)
    learner.train()
    assert learner.networks.distilled is not None
    assert int(learner.networks.distilled.taught) == 0
    factors = learner.statistics.factors()
    np.testing.assert_array_equal(factors.target_theta, factors.theta)


def test_the_gate_judges_the_source():
    with_head, without = with_update_due(), with_update_due(distil_head=False)
    assert with_head.pending is not None
    assert without.pending is not None
    assert with_head.pending.run().verdict == without.pending.run().verdict


def test_theta_of_the_target_follows_later_rounds_of_some_arms():
    rng = np.random.default_rng(0)
    state = LinUCB(ARMS, SIZE, RIDGE)
    state.target_shift = rng.standard_normal((ARMS, SIZE))
    for models in (np.arange(30) % ARMS, np.zeros(5, dtype=np.int64)):  # all, then one of them
        latents = rng.standard_normal((len(models), SIZE)).astype(np.float32)
        state.fold(latents, models, rng.random(len(models)))
        factors = state.factors()
        for theta, b in (
            (factors.theta, state.b),
            (factors.target_theta, state.b + state.target_shift),
        ):
            expected = np.linalg.solve(state.A, b[..., None])[..., 0]
            np.testing.assert_allclose(theta, expected, rtol=1e-9)
    assert factors.theta_of(Domain.SOURCE) is factors.theta
    assert factors.theta_of(Domain.TARGET) is factors.target_theta


def test_without_a_head_both_domains_have_one_theta():
    state = LinUCB(ARMS, SIZE, RIDGE)
    state.fold(np.ones((1, SIZE), dtype=np.float32), np.array([0]), np.ones(1))
    assert state.factors().target_theta is state.factors().theta
    state.fold(np.ones((1, SIZE), dtype=np.float32), np.array([1]), np.ones(1))
    assert state.factors().target_theta is state.factors().theta


def test_equal_folds_have_equal_hashes():
    first, second = with_update_due(), with_update_due()
    for learner in (first, second):
        learner.train()
    assert state_hash(first) == state_hash(second)
