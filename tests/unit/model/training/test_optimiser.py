"""Recorded steps stand in for plain ones; a recording that just runs the step shows it without a GPU."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model.learner import Learner, TrainingJob
from model.training.episode import Training, _Sampler
from model.training.networks import Networks
from model.training.optimiser import Moments, Recordings
from tests.support.builders import make_rounds, small_config, teach

FULL: dict[str, Any] = {
    "divergence_weight": 1.0,
    "consistency_weight": 1.0,
    "average_decay": 0.9,
    "steps_per_episode": 20,
}


class Recorder:
    """Counts recordings; like a warm-up, each of them leaves the networks changed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        self.count += 1
        step()
        return step


def job_after(rounds: int, seed: int = 5) -> TrainingJob:
    learner = Learner(small_config(**FULL), seed=seed)
    played = make_rounds(learner.config, rounds)
    teach(learner, played[:-1])
    learner.observe(played[-1])
    assert learner.pending is not None
    return learner.pending


def results(
    job: TrainingJob, recordings: Recordings | None
) -> tuple[dict[str, Tensor], Moments, dict[str, Tensor]]:
    networks: Networks = job.networks.clone().train()
    training = Training(networks, job.config)
    training.optimiser.load(job.moments)
    batches = _Sampler(job, networks).batches()
    if recordings is None:
        for batch in batches:
            training.step(batch)
    else:
        recordings.run(training, batches)
    return networks.state_dict(), training.optimiser.moments(), training.totals


def assert_equal(job: TrainingJob, recordings: Recordings) -> None:
    for plain, replayed in zip(results(job, None), results(job, recordings), strict=True):
        assert plain.keys() == replayed.keys()
        for name, value in plain.items():
            assert torch.equal(value, replayed[name]), name


@pytest.mark.parametrize("rounds", [16, 32])
def test_replayed_steps_lead_to_the_same_values_moments_and_losses(rounds: int):
    assert_equal(job_after(rounds), Recordings(Recorder()))


def test_a_recording_serves_later_episodes_and_other_experiments():
    recorder = Recorder()
    recordings = Recordings(recorder)
    for job in (job_after(16), job_after(32), job_after(16, seed=6)):
        assert_equal(job, recordings)
    assert recorder.count == 1


def test_other_batches_are_recorded_anew():
    recorder = Recorder()
    recordings = Recordings(recorder)
    whole, bare = job_after(32), _without_target(job_after(32))
    for job in (whole, bare, whole):
        assert_equal(job, recordings)
    assert recorder.count == 2


def test_moments_of_parameters_that_a_recording_does_not_move_are_kept():
    bare = _without_target(job_after(32))
    moments = results(bare, Recordings(Recorder()))[1]
    name = "discriminator.last.weight.first"
    assert torch.equal(moments[name], bare.moments[name])


def _without_target(job: TrainingJob) -> TrainingJob:
    empty = replace(job.data.target, contexts=job.data.target.contexts[:0])
    return replace(job, data=replace(job.data, target=empty))
