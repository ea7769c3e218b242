import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.encoders.ensemble import member_weights
from model.encoders.images import Conv, DomainBatchNorm
from model.encoders.vectors import Ensemble
from model.learner import Learner, TrainingJob
from model.rounds import Domain
from model.training import episode as training_episode
from model.training.augmentation import augmented
from model.training.episode import Trained, average_weight, train_episode
from model.training.networks import Networks
from tests.support.builders import make_rounds, small_config, teach


@pytest.fixture
def job(request):
    """A pending update in its second episode; parametrise it with configuration changes."""
    learner = Learner(small_config(**getattr(request, "param", {})), seed=5)
    rounds = make_rounds(learner.config, 32)
    teach(learner, rounds[:31])
    learner.observe(rounds[31])
    return learner.pending


def trained(job: TrainingJob, **changes: Any) -> Trained:
    config = job.config.changed(**changes)
    return train_episode(dataclasses.replace(job, config=config))


def values(networks: nn.Module) -> Tensor:
    return torch.cat([value.flatten() for value in networks.state_dict().values()])


def with_rounds(job: TrainingJob, **changes: Any) -> TrainingJob:
    rounds = dataclasses.replace(job.data.rounds, **changes)
    return dataclasses.replace(job, data=dataclasses.replace(job.data, rounds=rounds))


EVERYTHING = {
    "regression_weight": 0.1,
    "prediction_weight": 0.1,
    "divergence_weight": 1.0,
    "consistency_weight": 1.0,
}


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_same_job_trains_to_the_same_bytes(job):
    first, second = trained(job), trained(job)
    assert torch.equal(values(first.networks), values(second.networks))
    assert first.losses == second.losses


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_global_generators_play_no_part(job):
    torch.manual_seed(1)
    first = trained(job)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    assert torch.equal(values(trained(job).networks), values(first.networks))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_networks_and_moments_it_starts_from_stay_as_they_were(job):
    before = values(job.networks).clone()
    moments = {name: value.clone() for name, value in job.moments.items()}
    assert not torch.equal(values(trained(job).networks), before)
    assert torch.equal(values(job.networks), before)
    assert all(torch.equal(value, moments[name]) for name, value in job.moments.items())


def test_optimiser_continues_where_the_last_update_left_it(job):
    first = trained(job, steps_per_episode=6)
    assert float(first.moments["step"]) == float(job.moments["step"]) + 6


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
@pytest.mark.parametrize(
    ("weight", "term"),
    [
        ("regression_weight", "regression"),
        ("prediction_weight", "prediction"),
        ("divergence_weight", "divergence"),
    ],
)
def test_each_term_can_be_switched_off(job, weight, term):
    assert set(trained(job).losses) == {
        "reward",
        "regression",
        "prediction",
        "divergence",
        "consistency",
    }
    without = trained(job, **{weight: 0.0})
    assert set(trained(job).losses) - set(without.losses) == {term}
    assert not torch.equal(values(without.networks), values(trained(job).networks))


def test_training_lowers_the_loss(good_job):
    untrained = Networks.initial(good_job.config, 0, torch.device("cpu"))
    job = dataclasses.replace(good_job, networks=untrained, moments={})
    one, many = trained(job, steps_per_episode=1), trained(job, steps_per_episode=100)
    assert many.losses["reward"] < 0.5 * one.losses["reward"]


def test_held_out_rounds_are_never_trained_on(job):
    held = job.data.rounds.is_held_out
    assert held.any()
    assert not held.all()
    contexts, rewards = job.data.rounds.contexts.clone(), job.data.rounds.rewards.copy()
    contexts[torch.from_numpy(held)] = 99.0
    rewards[held] = 1 - rewards[held]
    other = with_rounds(job, contexts=contexts, rewards=rewards)
    assert torch.equal(values(trained(other).networks), values(trained(job).networks))


def test_training_rewards_matter(job):
    other = with_rounds(job, rewards=1 - job.data.rounds.rewards)
    assert not torch.equal(values(trained(other).networks), values(trained(job).networks))


def test_paper_objective_learns_through_the_frozen_theta(job):
    result = trained(job, objective="paper")
    assert torch.equal(values(result.networks.head), values(job.networks.head))
    assert not torch.equal(values(result.networks.encoder), values(job.networks.encoder))
    other = dataclasses.replace(job, theta=np.flip(job.theta, axis=0).copy())
    assert not torch.equal(
        values(trained(other, objective="paper").networks), values(result.networks)
    )


def test_working_objective_does_not_look_at_theta(job):
    other = dataclasses.replace(job, theta=job.theta + 1)
    assert torch.equal(values(trained(other).networks), values(trained(job).networks))


def test_zero_steps_train_nothing(job):
    result = trained(job, steps_per_episode=0)
    assert torch.equal(values(result.networks.head), values(job.networks.head))
    assert result.losses == {}


@pytest.mark.parametrize("job", [{"encoder": "pca"}, {"encoder": "identity"}], indirect=True)
def test_encoder_without_parameters_is_only_prepared(job):
    assert trained(job).losses == {}
    assert trained(job).moments == {}


def test_update_with_every_round_held_out_trains_nothing(job):
    blind = with_rounds(job, is_held_out=np.ones(len(job.data.rounds), dtype=np.bool_))
    assert trained(blind).losses == {}


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_update_without_target_contexts_learns_from_the_source_alone(job):
    sample = dataclasses.replace(job.data.target, contexts=job.data.target.contexts[:0])
    result = trained(dataclasses.replace(job, data=dataclasses.replace(job.data, target=sample)))
    assert set(result.losses) == {"reward", "regression", "prediction"}


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_target_contexts_matter_only_through_the_adaptive_terms(job):
    sample = dataclasses.replace(job.data.target, contexts=-3 * job.data.target.contexts)
    other = dataclasses.replace(job, data=dataclasses.replace(job.data, target=sample))
    assert not torch.equal(values(trained(other).networks), values(trained(job).networks))


def test_full_ramp_moves_the_encoder_and_none_leaves_it_to_the_rewards(job):
    episode = dataclasses.replace(job.data, episode=0)
    start = dataclasses.replace(job, data=episode)  # λ = 0 in episode 0 of a ramp
    ramped = trained(start, divergence_weight=1.0, divergence_ramp=10)
    at_once = trained(start, divergence_weight=1.0, divergence_ramp=0)
    assert not torch.equal(values(ramped.networks.encoder), values(at_once.networks.encoder))
    assert torch.isfinite(values(at_once.networks)).all()


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_teacher_follows_the_student_slowly(job):
    slow, still = (trained(job, teacher_decay=decay).networks.teacher for decay in (0.9, 1.0))
    assert slow is not None
    assert still is not None
    before = values(job.networks.teacher.head)
    assert torch.equal(values(still.head), before)
    assert not torch.equal(values(slow.head), before)


@pytest.mark.parametrize("job", [{**EVERYTHING, "encoder": "pca-mlp"}], indirect=True)
def test_the_teachers_encoder_is_served(job):
    networks = trained(job).networks
    assert networks.teacher is not None
    contexts = job.data.target.contexts
    latents = networks.encode(contexts, Domain.TARGET)
    assert torch.equal(latents, networks.teacher.encoder(contexts, Domain.TARGET))
    assert not torch.allclose(latents, networks.encoder(contexts, Domain.TARGET))
    # What is not learned by gradients is the same for both, not half-way there.
    mine, theirs = (dict(each.named_buffers()) for each in (networks.encoder, networks.served))
    assert mine
    for name, values_ in mine.items():
        torch.testing.assert_close(theirs[name], values_)


@pytest.mark.parametrize("job", [{**EVERYTHING, "average_decay": 0.999}], indirect=True)
def test_the_average_lies_between_the_steps_of_an_update(job):
    networks = trained(job).networks
    assert networks.average is not None
    assert networks.teacher is not None
    before, after = values(job.networks.head), values(networks.head)
    average = values(networks.average.head)
    assert not torch.equal(average, values(networks.teacher.head))
    middle = (average - before).norm() / (after - before).norm()
    assert 0.1 < middle < 1.0


def test_the_average_spans_a_tenth_of_all_steps_until_that_is_slower_than_its_decay(job):
    config = job.config.changed(average_decay=0.999, steps_per_episode=10)
    weights = [average_weight(config, episode) for episode in (1, 10, 100, 1000)]
    assert weights == pytest.approx([0.5, 10 / 110, 10 / 1010, 0.001])


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_the_teacher_can_be_left_to_its_own_arm_prior(job):
    sure = {"confidence_floor": 0.0}  # all that the teacher says counts
    matched, own = (trained(job, match_arm_prior=is_on, **sure) for is_on in (True, False))
    assert not torch.equal(values(matched.networks.head), values(own.networks.head))


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
def test_rounds_can_be_learned_from_their_views(job):
    plain, viewed = trained(job), trained(job, view_rounds=True)
    assert not torch.equal(values(plain.networks.head), values(viewed.networks.head))


@pytest.mark.parametrize("job", [{"divergence_weight": 1.0}], indirect=True)
@pytest.mark.parametrize("is_viewed", [True, False])
def test_domains_are_compared_by_views_of_both_or_of_none(job, monkeypatch, is_viewed):
    known = {row.tobytes() for row in job.data.target.contexts.numpy()}
    are_targets: set[bool] = set()

    def recorded(contexts: Tensor, *rest: Any) -> Tensor:
        are_targets.update(row.tobytes() in known for row in contexts.numpy())
        return augmented(contexts, *rest)

    monkeypatch.setattr(training_episode, "augmented", recorded)
    trained(job, view_rounds=is_viewed)
    assert are_targets == ({True, False} if is_viewed else set())


@pytest.mark.parametrize("job", [EVERYTHING], indirect=True)
@pytest.mark.parametrize("viewed", [{"view_rounds": True}, {"consistency_weight": 1.0}])
def test_views_leave_out_what_the_experiment_says(job, viewed):
    little, much = (trained(job, **viewed, view_dropout=share) for share in (0.1, 0.5))
    assert not torch.equal(values(little.networks.head), values(much.networks.head))


MEMBERS = {"encoder": "committee", "tower_count": 4, "latent_size": 16}


@pytest.mark.parametrize("job", [{**EVERYTHING, **MEMBERS}], indirect=True)
def test_members_train_to_the_same_bytes(job):
    first, second = trained(job), trained(job)
    assert torch.equal(values(first.networks), values(second.networks))


@pytest.mark.parametrize("job", [{"divergence_weight": 1.0, **MEMBERS}], indirect=True)
def test_members_without_strength_are_not_moved_by_the_target(job):
    sample = dataclasses.replace(job.data.target, contexts=job.data.target.contexts.flip(0))
    other = dataclasses.replace(job, data=dataclasses.replace(job.data, target=sample))
    mine, theirs = (
        trained(each).networks.encoder.get_parameter("layers.0.weight") for each in (job, other)
    )
    moved = (mine - theirs).flatten(1).abs().amax(dim=1)
    # The gradient's limit is one for all members, so the first half feels the others a little.
    assert (moved > 1e-5).tolist() == [False, False, True, True]


@pytest.mark.parametrize("job", [{**EVERYTHING, **MEMBERS, "average_decay": 0.9}], indirect=True)
def test_only_the_served_members_are_weighed(job):
    contexts = job.data.target.contexts.clone()
    contexts[:, 0] = contexts[:, 0].sign()
    sample = dataclasses.replace(job.data.target, contexts=contexts)
    rounds = job.data.rounds.contexts.clone()
    rounds[:, 0] = rounds[:, 0].sign()
    job = with_rounds(job, contexts=rounds)
    networks = trained(
        dataclasses.replace(job, data=dataclasses.replace(job.data, target=sample))
    ).networks
    served, learning = networks.served, networks.encoder
    assert isinstance(served, Ensemble)
    assert isinstance(learning, Ensemble)
    torch.testing.assert_close(served.weights, member_weights(4, 0.75))
    assert torch.equal(learning.weights, torch.ones(4))


@pytest.mark.parametrize("job", [{"context_shape": (3, 8, 8)}], indirect=True)
def test_batch_statistics_are_those_of_the_newest_contexts(job):
    encoder = trained(job).networks.encoder
    assert isinstance(encoder, Conv)
    first = encoder.norms[0]
    assert isinstance(first, DomainBatchNorm)
    rounds = job.data.rounds
    source = rounds.contexts[torch.from_numpy(~rounds.is_held_out)]
    hidden = functional.max_pool2d(encoder.convolutions[0](source), 2)
    torch.testing.assert_close(first.mean[0], hidden.mean(dim=(0, 2, 3)))
