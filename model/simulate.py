"""Two-domain worlds with known best arms, for tests, demos and benchmarks."""

from dataclasses import dataclass

import numpy as np

from model.randomness import generator
from model.rounds import Domain, Doubles, Floats, Integers


@dataclass(frozen=True, slots=True)
class Draw:
    """n rounds of a domain: contexts (n, d) or (n, K, d) and the expected reward of each arm (n, K)."""

    contexts: Floats
    expected: Doubles

    @property
    def best_arms(self) -> Integers:
        """The arm with the highest expected reward, (n,)."""
        return np.asarray(self.expected.argmax(axis=1))

    def regret(self, arms: Integers) -> Doubles:
        """Expected reward lost by each choice, (n,)."""
        chosen = self.expected[np.arange(len(arms)), arms]
        return np.asarray(self.expected.max(axis=1) - chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorld:
    """K classes of two clusters each (so no linear rule is best), one class an arm.

    The target is the source rotated, scaled, shifted and bent by `shift` (0 = the same domain,
    1 = strong), then moved `gap` away (5 leaves no overlap). `permuted` changes the best arm of each
    target class. `target_prior` sets the class balance of the target. `graded` rewards also pay arms
    next to the best one a little.
    """

    seed: int
    arm_count: int = 5
    size: int = 16
    shift: float = 1.0
    target_prior: tuple[float, ...] | None = None
    graded: bool = False
    noise: float = 0.35
    gap: float = 0.0
    permuted: bool = False

    def config_values(self) -> dict[str, object]:
        """The configuration fields that this world fixes."""
        return {
            "arm_count": self.arm_count,
            "context_shape": (self.size,),
            "exclusive_rewards": not self.graded,
        }

    def draw(self, domain: Domain, count: int, *names: object) -> Draw:
        """`count` independent rounds; the same names draw the same rounds."""
        rng = generator(self.seed, "draw", domain, *names)
        prior = self.target_prior if domain is Domain.TARGET else None
        classes = rng.choice(self.arm_count, size=count, p=prior)
        clusters = 2 * classes + rng.integers(2, size=count)
        contexts = self._centers()[clusters] + self.noise * rng.standard_normal((count, self.size))
        if domain is Domain.TARGET:
            contexts = self._moved(contexts)
            classes = (classes + self.permuted) % self.arm_count
        return Draw(contexts.astype(np.float32), self._payoffs()[classes])

    def reward(self, expected: float, seed: int, *names: object) -> float:
        """The reward of a choice: its expectation, without noise."""
        return expected

    def _centers(self) -> Doubles:
        rng = generator(self.seed, "centers")
        centers = rng.standard_normal((2 * self.arm_count, self.size))
        return np.asarray(1.6 * centers / np.linalg.norm(centers, axis=1, keepdims=True))

    def _payoffs(self) -> Doubles:
        if not self.graded:
            return np.eye(self.arm_count)
        arms = np.arange(self.arm_count)
        distance = np.abs(arms[:, None] - arms)
        return np.asarray(0.9 - 0.7 * distance / max(1, self.arm_count - 1))

    def _moved(self, contexts: Doubles) -> Doubles:
        rng = generator(self.seed, "shift")
        planes, _ = np.linalg.qr(rng.standard_normal((self.size, self.size)))
        scale = np.exp(0.3 * self.shift * rng.standard_normal(self.size))
        offset = 0.5 * self.shift * rng.standard_normal(self.size)
        bend = (
            0.3 * self.shift * np.tanh(contexts @ rng.standard_normal((self.size, self.size)) / 2)
        )
        moved = (contexts @ _rotation(planes, 0.8 * self.shift) + bend) * scale + offset
        away = generator(self.seed, "gap").standard_normal(self.size)
        return np.asarray(moved + self.gap * away / np.linalg.norm(away))


def _rotation(planes: Doubles, angle: float) -> Doubles:
    """Rotation by `angle` in the size // 2 planes that consecutive columns span."""
    rotated = planes.copy()
    cosine, sine = np.cos(angle), np.sin(angle)
    for i in range(0, planes.shape[1] - 1, 2):
        first, second = planes[:, i], planes[:, i + 1]
        rotated[:, i], rotated[:, i + 1] = (
            cosine * first + sine * second,
            cosine * second - sine * first,
        )
    return np.asarray(rotated @ planes.T)
