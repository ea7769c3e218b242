"""The linear bandit on latents: A = γI + Σ zzᵀ, b = Σ rz, θ = A⁻¹b, for one or K models.

Sums are float64 and rounds are folded one by one, so that the result does not depend on how a stream
was cut into batches.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from model.rounds import Domain, Doubles, Floats, Integers


class NotPositiveDefiniteError(ArithmeticError):
    """A is not positive definite, through a bug or corruption; a rebuild from the log repairs it."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of (A, b) that serving needs: θ (M, d) and L⁻¹ (M, d, d) with A = LLᵀ; width = ‖L⁻¹z‖.

    `own_target_theta` is the target's own θ, if there is one (see `target_head`).
    """

    theta: Doubles
    inverse_root: Doubles
    own_target_theta: Doubles | None = None

    @property
    def target_theta(self) -> Doubles:
        """The θ that decides on the target, (M, d)."""
        return self.theta if self.own_target_theta is None else self.own_target_theta

    def theta_of(self, domain: Domain) -> Doubles:
        """The θ that decides on a domain, (M, d)."""
        return self.target_theta if domain is Domain.TARGET else self.theta


class LinUCB:
    """M linear models over latents of size d: M = K for disjoint arms, M = 1 for a joint model.

    `target_shift` (M, d), if set, is added to b for the target's θ (see `target_head`).
    """

    def __init__(self, model_count: int, latent_size: int, ridge: float) -> None:
        self.ridge = ridge
        shape = (model_count, latent_size)
        self._gram: Doubles = np.zeros((*shape, latent_size))
        self._b: Doubles = np.zeros(shape)
        self.counts: Integers = np.zeros(model_count, dtype=np.int64)
        self.target_shift: Doubles | None = None
        self._factors = Factors(np.zeros(shape), np.zeros((*shape, latent_size)))
        self._factored_counts: Integers = np.full(model_count, -1)  # none is factored yet
        self._conditions = np.ones(model_count)  # of γI
        self._conditioned_counts: Integers = np.zeros(model_count, dtype=np.int64)

    @property
    def gram(self) -> Doubles:
        """A copy of Σ zzᵀ of each model, (M, d, d)."""
        return self._gram.copy()

    @property
    def b(self) -> Doubles:
        """A copy of Σ rz of each model, (M, d)."""
        return self._b.copy()

    @property
    def A(self) -> Doubles:  # noqa: N802 - the paper's name
        """The design matrices γI + Σ zzᵀ, (M, d, d)."""
        return _regularised(self.gram, self.ridge)

    def fold(self, latents: Floats, models: Integers, rewards: Doubles) -> None:
        """A += zzᵀ and b += rz for each round in order; latents (n, d), models and rewards (n,)."""
        wide = latents.astype(np.float64)
        for z, model, reward in zip(wide, models.tolist(), rewards.tolist(), strict=True):
            self._gram[model] += z[:, None] * z
            self._b[model] += reward * z
        self.counts += np.bincount(models, minlength=len(self.counts))

    @classmethod
    def rebuilt(
        cls, latents: Floats, models: Integers, rewards: Doubles, model_count: int, ridge: float
    ) -> Self:
        """The statistics of many rounds at once, by one matrix product an arm."""
        size = latents.shape[1]
        gram, b = np.zeros((model_count, size, size)), np.zeros((model_count, size))
        wide = latents.astype(np.float64)
        for model in np.unique(models).tolist():
            Z = wide[models == model]  # (n_a, d)
            gram[model] = Z.T @ Z
            b[model] = rewards[models == model] @ Z
        return cls.of_sums(gram, b, np.bincount(models, minlength=model_count), ridge)

    @classmethod
    def of_sums(
        cls,
        gram: Doubles,
        b: Doubles,
        counts: Integers,
        ridge: float,
        target_shift: Doubles | None = None,
    ) -> Self:
        """The statistics with these sums: Σ zzᵀ (M, d, d), Σ rz (M, d) and the number of rounds (M,)."""
        built = cls(len(b), b.shape[1], ridge)
        built._gram, built._b, built.counts = _symmetric(gram), b.copy(), counts.copy()
        built.target_shift = target_shift
        return built

    def without(self, part: Self) -> Self:
        """The statistics less those of some of the rounds, without the target's shift."""
        rest = type(self)(len(self._b), self._b.shape[1], self.ridge)
        rest._gram, rest._b = self._gram - part._gram, self._b - part._b
        rest.counts = self.counts - part.counts
        return rest

    def factors(self) -> Factors:
        """θ and L⁻¹ of every model; only those that changed since the last call are factored."""
        stale = np.flatnonzero(self.counts != self._factored_counts)
        if stale.size:
            before, found = self._factors, self._factored(stale)
            theta, inverse_root = before.theta.copy(), before.inverse_root.copy()
            theta[stale], inverse_root[stale] = found.theta, found.inverse_root
            own = None
            if self.target_shift is not None:
                own = before.target_theta.copy()
                own[stale] = found.target_theta
            self._factors = Factors(theta, inverse_root, own)
        self._factored_counts = self.counts.copy()
        return self._factors

    def _factored(self, models: Integers) -> Factors:
        """θ and L⁻¹ of some models."""
        A, b = _regularised(self._gram[models], self.ridge), self._b[models]
        try:
            L = np.linalg.cholesky(A)
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefiniteError("A is not positive definite") from error
        # Triangular substitution is several times cheaper than a general inverse.
        unit = torch.eye(L.shape[1], dtype=torch.float64)
        inverse_root = torch.linalg.solve_triangular(torch.from_numpy(L), unit, upper=False).numpy()
        theta = _solved(A, inverse_root, b)
        if self.target_shift is None:
            return Factors(theta, inverse_root)
        shifted = b + self.target_shift[models]
        return Factors(theta, inverse_root, _solved(A, inverse_root, shifted))

    def condition_numbers(self) -> Doubles:
        """Condition number of each A, (M,); computed again only for models that changed."""
        stale = np.flatnonzero(self.counts != self._conditioned_counts)
        if stale.size:
            values = np.linalg.eigvalsh(_regularised(self._gram[stale], self.ridge))
            self._conditions[stale] = values[:, -1] / values[:, 0]
            self._conditioned_counts = self.counts.copy()
        return self._conditions.copy()


def _solved(A: Doubles, inverse_root: Doubles, b: Doubles) -> Doubles:
    """A⁻¹b of each model, (M, d)."""
    column = b[..., None]
    theta = inverse_root.mT @ (inverse_root @ column)
    theta += inverse_root.mT @ (inverse_root @ (column - A @ theta))  # one step of refinement
    return theta[..., 0]


def _symmetric(gram: Doubles) -> Doubles:
    """A copy whose upper triangle mirrors the lower: a matrix product may round the two differently."""
    return np.where(np.tri(gram.shape[1], dtype=np.bool_), gram, gram.mT)


def _regularised(gram: Doubles, ridge: float) -> Doubles:
    """γI + Σ zzᵀ, in place."""
    gram.reshape(len(gram), -1)[:, :: gram.shape[1] + 1] += ridge
    return gram
