"""The linear bandit on latents: A = γI + Σ zzᵀ, b = Σ rz, θ = A⁻¹b, one or K of them.

Sums are float64 and folded one round after the other, so that the result depends on the order of
the rounds alone and never on how a stream was cut into batches.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from model.rounds import Doubles, Floats, Integers

_TERM_NUMBERS = 1 << 17  # zzᵀ of a few rounds at a time, so that they stay in the cache


class NotPositiveDefiniteError(ArithmeticError):
    """A is not positive definite: a bug or corruption, to be answered by a rebuild from the log."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What serving needs of (A, b): θ (M, d) and L⁻¹ (M, d, d) with A = LLᵀ, so width = ‖L⁻¹z‖."""

    theta: Doubles
    inverse_root: Doubles


class LinUCB:
    """M linear models over latents of size d: M = K for disjoint arms, M = 1 for a joint model."""

    def __init__(self, model_count: int, latent_size: int, ridge: float) -> None:
        self.ridge = ridge
        # Σ z(z, r)ᵀ of each model: Σ zzᵀ and Σ rz side by side, so that a round is one addition.
        self._sums: Doubles = np.zeros((model_count, latent_size, latent_size + 1))
        self.counts: Integers = np.zeros(model_count, dtype=np.int64)
        self._factors: Factors | None = None
        self._stale = np.ones(model_count, dtype=np.bool_)

    @property
    def gram(self) -> Doubles:
        """Σ zzᵀ of each model, (M, d, d)."""
        return self._sums[:, :, :-1]

    @property
    def b(self) -> Doubles:
        """Σ rz of each model, (M, d)."""
        return self._sums[:, :, -1]

    @property
    def A(self) -> Doubles:  # noqa: N802 - the paper's name
        """The design matrices γI + Σ zzᵀ, (M, d, d)."""
        return self.gram + self.ridge * np.eye(self.gram.shape[1])

    def fold(self, latents: Floats, models: Integers, rewards: Doubles) -> None:
        """A += zzᵀ and b += rz for each round in turn; latents (n, d), models and rewards (n,)."""
        paired = np.empty((len(latents), self._sums.shape[2]))  # (z, r) of each round
        paired[:, :-1], paired[:, -1] = latents, rewards
        rounds, sums = torch.from_numpy(paired), torch.from_numpy(self._sums)
        chosen = torch.tensor(models)
        rows = max(1, _TERM_NUMBERS // self._sums[0].size)
        for start in range(0, len(rounds), rows):
            some = slice(start, start + rows)
            # The terms are computed together and added one by one, in order: products of single
            # numbers round the same either way, sums would not.
            terms = rounds[some, :-1, None] * rounds[some, None, :]
            sums.index_add_(0, chosen[some], terms)
        self.counts += np.bincount(models, minlength=len(self.counts))
        self._stale[models] = True

    @classmethod
    def rebuilt(
        cls, latents: Floats, models: Integers, rewards: Doubles, model_count: int, ridge: float
    ) -> Self:
        """The statistics of many rounds at once, by one matrix product an arm."""
        built = cls(model_count, latents.shape[1], ridge)
        wide = latents.astype(np.float64)
        for model in np.unique(models).tolist():
            Z = wide[models == model]  # (n_a, d)
            built.gram[model] = Z.T @ Z
            built.b[model] = rewards[models == model] @ Z
        built.counts += np.bincount(models, minlength=model_count)
        return built

    @classmethod
    def of_sums(cls, gram: Doubles, b: Doubles, counts: Integers, ridge: float) -> Self:
        """The statistics with these sums: Σ zzᵀ (M, d, d), Σ rz (M, d) and the number of rounds (M,)."""
        built = cls(len(b), b.shape[1], ridge)
        built.gram[:], built.b[:], built.counts = gram, b, counts
        return built

    def merged(self, other: "LinUCB") -> Self:
        """The statistics of two disjoint parts of a log together: sums add up."""
        if self.gram.shape != other.gram.shape or self.ridge != other.ridge:
            raise ValueError("merge: the two states differ in shape or ridge")
        return self.of_sums(
            self.gram + other.gram, self.b + other.b, self.counts + other.counts, self.ridge
        )

    def factors(self) -> Factors:
        """θ and L⁻¹ of every model; only those that changed since the last call are factored."""
        if self._factors is None:
            self._factors = Factors(np.zeros(self.b.shape), np.zeros(self.gram.shape))
        stale = np.flatnonzero(self._stale)
        if stale.size:
            theta, inverse_root = self._factors.theta.copy(), self._factors.inverse_root.copy()
            theta[stale], inverse_root[stale] = self._factored(stale)
            self._factors = Factors(theta, inverse_root)
            self._stale[:] = False
        return self._factors

    def _factored(self, models: Integers) -> tuple[Doubles, Doubles]:
        A = self.gram[models] + self.ridge * np.eye(self.gram.shape[1])
        try:
            L = np.linalg.cholesky(A)
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefiniteError("A is not positive definite") from error
        # By substitution: several times cheaper than an inverse that does not know of the zeros.
        unit = torch.eye(L.shape[1], dtype=torch.float64)
        inverse_root = torch.linalg.solve_triangular(torch.from_numpy(L), unit, upper=False).numpy()
        b = self.b[models][..., None]
        theta = inverse_root.mT @ (inverse_root @ b)
        theta += inverse_root.mT @ (inverse_root @ (b - A @ theta))  # one step of refinement
        return theta[..., 0], inverse_root

    def condition_numbers(self) -> Doubles:
        """Condition number of each A, (M,)."""
        values = np.linalg.eigvalsh(self.A)
        return np.asarray(values[:, -1] / values[:, 0])
