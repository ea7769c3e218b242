"""A two-dimensional map of both domains' latents with their best-rated arms."""

from dataclasses import dataclass

import numpy as np

from model.learner import Learner
from model.rounds import Booleans, Domain, Doubles, Integers

MOST = 600  # contexts of each domain


@dataclass(frozen=True, slots=True)
class LatentMap:
    """Points (n, 2) by principal components of latents of both domains, and their best-rated arms.

    `explained` is the fraction of the latents' variance in these two directions.
    """

    points: Doubles
    is_target: Booleans
    arms: Integers
    explained: float

    def arm_prior(self, domain: Domain, arm_count: int) -> Doubles:
        """How often each arm is the best-rated one in a domain, (K,)."""
        arms = self.arms[self.is_target == (domain is Domain.TARGET)]
        return np.bincount(arms, minlength=arm_count) / max(1, len(arms))


def latent_map(learner: Learner) -> LatentMap:
    """The map of the learner's contexts; in a joint model all arms are 0."""
    latents = {
        domain: learner.networks.encode(learner.contexts[domain].sample().contexts[-MOST:], domain)
        .double()
        .cpu()
        .numpy()
        for domain in Domain
    }
    both = np.concatenate(list(latents.values()))
    is_target = np.repeat([False, True], [len(latents[domain]) for domain in Domain])
    factors = learner.statistics.factors()
    arms = [(some @ factors.theta_of(domain).T).argmax(axis=1) for domain, some in latents.items()]
    points, explained = _projected(both)
    return LatentMap(points, is_target, np.concatenate(arms), explained)


def _projected(latents: Doubles) -> tuple[Doubles, float]:
    if len(latents) < 3:
        return np.zeros((len(latents), 2)), 0.0
    centered = latents - latents.mean(axis=0)
    _, values, directions = np.linalg.svd(centered, full_matrices=False)
    flat = np.zeros((len(latents), 2))
    found = centered @ directions[:2].T
    flat[:, : found.shape[1]] = found
    total = float((values**2).sum())
    return flat, float((values[:2] ** 2).sum()) / total if total > 0 else 0.0
