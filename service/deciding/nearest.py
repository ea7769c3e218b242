"""The rounds of the source that the encoder sees nearest to contexts of the target.

They come from a sample of bounded size: the newest rewarded source rounds that the policy has learned from.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from model import Domain, Floats, Policy
from service.codec.decisions import chosen_contexts
from service.codec.target_contexts import TargetRows
from service.deciding.policies import Served
from service.deciding.target import TargetSelecting, chosen_inputs, selected
from service.experiment_spec import ExperimentSpec
from service.storage.events.browsing import Browsing, LogFilter, PairedDecision
from service.storage.events.log import EventLog

MOST_SAMPLED = 1000  # rounds
MOST_NUMBERS = 1 << 22  # of all their contexts: 16 MiB
ROWS_A_PASS = 128  # bounds the memory of an encoder's pass over images
REWARDED = LogFilter(Domain.SOURCE, is_rewarded=True)


class Sample(NamedTuple):
    """Rounds of the source, the newest first, and what the encoder was given of each (n, *shape)."""

    rounds: Sequence[PairedDecision]
    contexts: Floats


class Neighbour(NamedTuple):
    """A round of the sample by its row, and its distance in the latent space."""

    row: int
    distance: float


class Nearest(NamedTuple):
    """The nearest rounds of each context, in the order of the request."""

    sample: Sample
    neighbours: Sequence[Sequence[Neighbour]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Finds the nearest rounds."""

    browsing: Browsing
    event_log: EventLog
    selecting: TargetSelecting

    async def nearest(self, served: Served, groups: Sequence[TargetRows], count: int) -> Nearest:
        """At most `count` rounds for each context; of per-arm contexts that of the chosen arm counts."""
        sample = await self._sample(served)
        if not sample.rounds:
            return Nearest(sample, [[] for group in groups for _ in group.rows])

        async def found(policy: Policy) -> list[list[Neighbour]]:
            return await asyncio.to_thread(_nearest, policy, served.spec, groups, sample, count)

        return Nearest(sample, await self.selecting.with_policy(served, found))

    async def _sample(self, served: Served) -> Sample:
        spec, experiment_id = served.spec, served.experiment.experiment_id
        learned = served.policy.version.offset
        most = min(MOST_SAMPLED, max(1, MOST_NUMBERS // math.prod(spec.context_shape)))
        page = await self.browsing.page(experiment_id, learned + 1, most, REWARDED)
        rounds = [each for each in page.pairs if (each.reward_offset or 0) <= learned]
        return Sample(rounds, await self._contexts(experiment_id, rounds, spec))

    async def _contexts(
        self, experiment_id: str, rounds: Sequence[PairedDecision], spec: ExperimentSpec
    ) -> Floats:
        offsets = [each.decision.offset for each in rounds]
        events = await self.event_log.events_at(experiment_id, offsets)
        return chosen_contexts([events[offset] for offset in offsets], spec)


def _nearest(
    policy: Policy, spec: ExperimentSpec, groups: Sequence[TargetRows], sample: Sample, count: int
) -> list[list[Neighbour]]:
    asked = chosen_inputs(spec, groups, [selected(policy, spec, group) for group in groups])
    known = _latents(policy, sample.contexts, Domain.SOURCE)
    found = []
    for latent in _latents(policy, asked, Domain.TARGET):
        distances = np.linalg.norm(known - latent, axis=1)
        rows = np.argsort(distances, kind="stable")[:count].tolist()
        found.append([Neighbour(row, float(distances[row])) for row in rows])
    return found


def _latents(policy: Policy, contexts: Floats, domain: Domain) -> Floats:
    starts = range(0, len(contexts), ROWS_A_PASS)
    return np.concatenate(
        [policy.latents(contexts[start : start + ROWS_A_PASS], domain) for start in starts]
    )
