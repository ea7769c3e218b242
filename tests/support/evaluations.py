"""Experiments with a log, made through the service's own parts."""

from typing import Any

import numpy as np

from model.learner import Learner
from service.codec.decisions import DecisionOrigin, Side, chosen_arms, decision_event
from service.experiment_spec import ExperimentSpec
from service.learning.fold import Folder
from service.records import Domain, EventKind, Experiment, NewEvent, uuid7
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.worlds import LinearWorld

WORLD = LinearWorld(seed=5, arm_count=3, size=4)
TOGETHER = 25  # rounds between two policies
DECLARED: dict[str, Any] = {"epsilon": 0.3, "latent_size": 4, "hidden_sizes": [8]}


def linear_spec(name: str, method: str = "linucb", **config: Any) -> ExperimentSpec:
    return ExperimentSpec(
        name,
        ("low", "mid", "high"),
        WORLD.kind,
        (4,),
        method,
        seed=3,
        config={**DECLARED, **config},
    )


async def play(
    experiment: Experiment, event_log: EventLog, count: int, seed: int = 0, with_target: bool = True
) -> None:
    """Rounds that a learner of the experiment decides, as the service would, and learns from."""
    spec = ExperimentSpec.of(experiment)
    folder = Folder(Learner(spec.bandit_config(), spec.seed), spec)
    draw, target = (WORLD.draw(domain, count, "played", seed) for domain in Domain)
    offset = experiment.head_offset
    for start in range(0, count, TOGETHER):
        policy = folder.learner.policy(version=1 + start // TOGETHER)
        events = []
        for row in range(start, min(count, start + TOGETHER)):
            made = _decision(experiment, spec, policy, Domain.SOURCE, draw.contexts[row])
            expected = float(draw.expected[row, spec.arm_indexes[made.arm or ""]])
            events.append(made)
            if with_target:
                context = target.contexts[row]
                events.append(_decision(experiment, spec, policy, Domain.TARGET, context))
            events.append(
                NewEvent(
                    experiment.experiment_id,
                    EventKind.REWARD,
                    made.event_key,
                    reward=WORLD.reward(expected, seed, row),
                )
            )
        await event_log.append(events)
        page = await event_log.read(experiment.experiment_id, offset, len(events))
        offset = page[-1].offset
        assert folder.fold(page) == []


def _decision(
    experiment: Experiment, spec: ExperimentSpec, policy: Any, domain: Domain, context: np.ndarray
) -> NewEvent:
    decision_id = uuid7()
    selection = policy.select_many(context[None], domain, [decision_id])
    origin = DecisionOrigin(experiment.experiment_id, uuid7(), "hash", policy.version.version)
    side = Side(domain, spec.arms, context.astype("<f4").tobytes())
    (chosen,) = chosen_arms(selection, [side], [None], encoder_version=0)
    return decision_event(origin, side, decision_id, chosen)


async def played(
    experiments: Experiments, event_log: EventLog, name: str, count: int, **options: Any
) -> Experiment:
    """A new experiment with a log."""
    spec = linear_spec(name)
    experiment = await experiments.create(name, spec.to_json())
    await play(experiment, event_log, count, **options)
    return await experiments.get(name)
