"""What an experiment has learned: rewards along the log, arms, latents of both domains."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Response

from model import Domain, LatentMap, latent_map
from service.auth.tenants import public_name
from service.codec.log_answers import Latents, Learning
from service.experiment_spec import ExperimentSpec
from service.learning.restore import LearnerStore
from service.records import EventKind, Experiment
from service.routes import ExperimentDep, ServicesDep, json_answer
from service.routes.documentation import problems
from service.services import Services
from service.storage.events.browsing import MOST_IN_A_BLOCK, BlockCount, blocks_of

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])

Key = TypeVar("Key", int, str)
Points = Annotated[int, Query(ge=1, le=100, description="how many blocks the log is cut into")]
Limit = Annotated[int, Query(ge=1, le=600, description="contexts of each domain")]


@router.get("/learning", response_model=Learning, responses=problems(404))
async def show_learning(
    experiment: ExperimentDep,
    services: ServicesDep,
    domain: Domain = Domain.SOURCE,
    points: Points = 60,
) -> Response:
    """Mean reward and regret along the log, and what each arm earned.

    The log is cut into blocks of equal length. At most 200 events of a block are read.
    """
    return json_answer(await learning_answer(services, experiment, domain, points))


@router.get("/latents", response_model=Latents, responses=problems(404))
async def show_latents(
    experiment: ExperimentDep, services: ServicesDep, limit: Limit = 300
) -> Response:
    """Encoded contexts of both domains in the two directions of most variance; costs as much as a report."""
    return json_answer(await latents_answer(services, experiment, limit))


async def learning_answer(
    services: Services, experiment: Experiment, domain: Domain, points: int
) -> dict[str, Any]:
    """Rewards along the log, as answered."""
    blocks = blocks_of(experiment.head_offset, points)
    counts = await services.browsing.counts(experiment.experiment_id, domain, blocks)
    best = best_reward(ExperimentSpec.of(experiment))
    return {
        "experiment": public_name(experiment.name),
        "domain": domain,
        "last_offset": experiment.head_offset,
        "is_complete": experiment.head_offset <= points * MOST_IN_A_BLOCK,
        "best_reward": best,
        "points": _points(blocks, counts, best),
        "arms": _arms(counts),
    }


def best_reward(spec: ExperimentSpec) -> float | None:
    """The best reward of a round, where it is known: exactly one arm pays 1."""
    return 1.0 if spec.config.get("exclusive_rewards") else None


def _points(
    blocks: Sequence[tuple[int, int]], counts: Sequence[BlockCount], best: float | None
) -> list[dict[str, Any]]:
    found = []
    for number, some in sorted(_grouped(counts, lambda each: each.block).items()):
        rewards, total = _rewards(some)
        if rewards:
            after, offset = blocks[number]
            mean = total / rewards
            regret = None if best is None else best - mean
            point = {"after": after, "offset": offset, "rewards": rewards, "mean": mean}
            found.append({**point, "regret": regret})
    return found


def _arms(counts: Sequence[BlockCount]) -> list[dict[str, Any]]:
    """Each arm of these blocks, the most chosen first."""
    found = []
    for arm, some in _grouped(counts, lambda each: each.arm).items():
        decisions = sum(each.amount for each in some if each.kind is EventKind.DECISION)
        rewards, total = _rewards(some)
        mean = total / rewards if rewards else None
        found.append({"arm": arm, "decisions": decisions, "rewards": rewards, "mean": mean})
    return sorted(found, key=lambda each: (-each["decisions"], each["arm"]))


def _grouped(
    counts: Sequence[BlockCount], key: Callable[[BlockCount], Key]
) -> dict[Key, list[BlockCount]]:
    found: defaultdict[Key, list[BlockCount]] = defaultdict(list)
    for each in counts:
        found[key(each)].append(each)
    return found


def _rewards(counts: Sequence[BlockCount]) -> tuple[int, float]:
    """How many rewards there are, and their sum."""
    rewards = [each for each in counts if each.kind is EventKind.REWARD]
    return sum(each.amount for each in rewards), sum(each.total for each in rewards)


async def latents_answer(services: Services, experiment: Experiment, limit: int) -> dict[str, Any]:
    """Encoded contexts, as answered."""
    spec = ExperimentSpec.of(experiment)
    loaded = await LearnerStore(services.event_log, services.snapshots).load(experiment, spec)
    found = await asyncio.to_thread(latent_map, loaded.learner)
    return {
        "experiment": public_name(experiment.name),
        "policy_version": loaded.version,
        "encoder_version": loaded.learner.encoder_version,
        "explained": found.explained,
        "points": _latents(found, spec, limit),
    }


def _latents(found: LatentMap, spec: ExperimentSpec, limit: int) -> list[dict[str, Any]]:
    """The newest contexts of each domain."""
    points = []
    for domain in Domain:
        rows = np.flatnonzero(found.is_target == (domain is Domain.TARGET))
        for row in rows[-limit:]:
            x, y = found.points[row].tolist()
            arm = None if spec.is_per_arm else spec.arms[int(found.arms[row])]
            points.append({"domain": domain.value, "x": x, "y": y, "arm": arm})
    return points
