"""A linear world beside the clusters of `model.simulate`, and configurations that fit worlds."""

from dataclasses import dataclass

import numpy as np

from model.config import BanditConfig, ContextKind
from model.randomness import generator, uniform
from model.rounds import Domain, Doubles
from model.simulate import ClusterWorld, Draw


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearWorld:
    """Expected rewards linear in unit-norm contexts: ½ + ½·xᵀθ_a; there is no shift.

    `kind` shared: one context, a θ an arm. per_arm: a context an arm, one θ.
    """

    seed: int
    arm_count: int = 5
    size: int = 8
    kind: ContextKind = ContextKind.SHARED

    def config_values(self) -> dict[str, object]:
        """The configuration fields that this world fixes."""
        return {
            "arm_count": self.arm_count,
            "context_shape": (self.size,),
            "context_kind": self.kind,
        }

    def draw(self, domain: Domain, count: int, *names: object) -> Draw:
        """`count` independent rounds; the same names draw the same rounds."""
        rng = generator(self.seed, "draw", domain, *names)
        is_joint = self.kind is ContextKind.PER_ARM
        shape = (count, self.arm_count, self.size) if is_joint else (count, self.size)
        contexts = _unit_rows(rng.standard_normal(shape))
        weights = _unit_rows(
            generator(self.seed, "theta").standard_normal((self.arm_count, self.size))
        )
        products = contexts @ weights[0] if is_joint else contexts @ weights.T
        return Draw(contexts.astype(np.float32), 0.5 + 0.5 * products)

    def reward(self, expected: float, seed: int, *names: object) -> float:
        """0 or 1 with the given expectation, drawn by name."""
        return float(uniform(seed, "reward", *names) < expected)


def _unit_rows(rows: Doubles) -> Doubles:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


World = ClusterWorld | LinearWorld


def world_config(world: World, base: BanditConfig | None = None, **changes: object) -> BanditConfig:
    """A configuration that fits the world, on top of `base`."""
    values = {**world.config_values(), **changes}
    return base.changed(**values) if base else BanditConfig.from_mapping(values)
