from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from model.learner import Learner, TrainingJob
from model.state.jobs import (
    Message,
    _training_job,
    answered,
    judgement_of,
    judging_message,
    outcome_of,
    training_message,
)
from model.state.snapshot import state_hash
from service.learning.jobs.pipe import receive, send
from tests.support.builders import make_rounds, poisoned, small_config, teach

KINDS: dict[str, dict[str, Any]] = {
    "all loss terms": {"divergence_weight": 1.0, "regression_weight": 0.1},
    "a teacher": {"consistency_weight": 1.0, "view_rounds": True},
    "an average": {"average_decay": 0.99},
    "a distilled head": {"distil_head": True, "exclusive_rewards": True},
    "the paper's objective": {"objective": "paper", "divergence_weight": 1.0},
    "a context an arm": {"context_kind": "per_arm"},
    "images": {"context_shape": (1, 8, 8), "steps_per_episode": 1},
    "not learned": {"encoder": "pca"},
    "statistics kept": {"statistics": "keep"},
}


def learner_of(changes: dict[str, Any]) -> Learner:
    """After an encoder update, so that there are moments, with the next one due."""
    learner = Learner(small_config(gate_margin=1.0, gate_rank=1.0, **changes), seed=7)
    rounds = make_rounds(learner.config, 32)
    teach(learner, rounds[:31])
    learner.observe(rounds[31])
    assert learner.pending is not None
    return learner


def elsewhere(message: Message) -> Message:
    """The answer of a process that has nothing but the bytes of the message."""
    return over_a_pipe(answered(over_a_pipe(message), "cpu"))


def over_a_pipe(message: Message) -> Message:
    pipe = BytesIO()
    send(pipe, message)
    pipe.seek(0)
    return receive(pipe)


def run_elsewhere(job: TrainingJob) -> Any:
    return outcome_of(elsewhere(training_message(job)), job)


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_an_update_made_elsewhere_leads_to_the_same_bytes(changes: dict[str, Any]):
    here, there = learner_of(changes), learner_of(changes)
    assert here.pending is not None
    assert there.pending is not None
    here.conclude(here.pending.run())
    there.conclude(run_elsewhere(there.pending))
    assert there.encoder_version == 2
    assert state_hash(there) == state_hash(here)


def test_all_that_is_said_of_an_update_comes_back(good_job: TrainingJob):
    here, there = good_job.run(), run_elsewhere(good_job)
    assert (there.episode, there.losses, there.verdict) == (here.episode, here.losses, here.verdict)
    assert there.losses


def test_an_update_that_diverged_comes_back_as_it_is(good_job: TrainingJob):
    broken = poisoned(good_job, contexts=1e38, rewards=1e38)
    found = run_elsewhere(broken)
    assert found.verdict == broken.run().verdict
    assert "not finite" in found.verdict.reasons[0]


def test_a_job_is_not_changed_by_its_answer(good_job: TrainingJob):
    before = {name: value.clone() for name, value in good_job.networks.state_dict().items()}
    run_elsewhere(good_job)
    after = good_job.networks.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    "kind",
    [
        "a distilled head",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("all loss terms", "a teacher", "a context an arm")
        ),
    ],
)
def test_a_judgement_made_elsewhere_is_the_same(kind: str):
    large = {"rebuild_window": 400, "reservoir_size": 200, "holdout_share": 0.5}
    lenient = {"gate_margin": 1.0, "gate_rank": 1.0}
    learner = Learner(small_config(**KINDS[kind], **large, **lenient), seed=7)
    teach(learner, make_rounds(learner.config, 160))
    job = learner.judging()
    assert job is not None
    assert job.confidence is not None
    assert judgement_of(elsewhere(judging_message(job))) == job.run()


def test_an_encoder_is_judged_as_it_serves(good_learner: Learner):
    job = good_learner.judging()
    assert job is not None
    contexts = job.target.numpy()
    served = good_learner.policy().select_target(contexts).confidence.mean()
    assert job.run().signs.expected_reward == float(served)


def test_the_message_copies_no_contexts(good_job: TrainingJob):
    message = training_message(good_job)
    contexts = good_job.data.rounds.contexts.numpy()
    assert np.shares_memory(message.arrays["rounds.contexts"], contexts)


def test_contexts_keep_their_places_in_the_log(good_job: TrainingJob):
    found = _training_job(over_a_pipe(training_message(good_job)), torch.device("cpu")).data
    for sent, received in (
        (good_job.data.source, found.source),
        (good_job.data.target, found.target),
    ):
        assert len(sent.references)
        assert received.references.tolist() == sent.references.tolist()
    assert good_job.data.source.references.tolist() != good_job.data.target.references.tolist()
