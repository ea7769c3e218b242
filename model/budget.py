"""Upper estimates of the bytes and seconds that an experiment, or a request for decisions, needs.

The figures hold for one CPU core. They are made before anything is allocated, so that an experiment
that no process could hold is refused when it is declared, and a request before it is worked on.
"""

import math
from dataclasses import dataclass

from model.config import BanditConfig, HoldoutRule
from model.encoders.kinds import kind_of
from model.encoders.size import NetworkSize, network_size
from model.encoders.vectors import PCA_ROWS
from model.memory import FIRST_ROWS
from model.training.episode import STEPS_AT_ONCE

FLOAT, DOUBLE = 4, 8
# Rows of contexts and activations that one step holds: forward, kept for backward, gradients.
COPIES_OF_ACTIVATIONS = 6
# While contexts are augmented: noise, a mask and sums as large as the contexts.
COPIES_OF_BATCHES = 6
COPIES_OF_WEIGHTS = 8  # before, after, gradients, two moments before and after, the message
COPIES_OF_STATISTICS = 4  # sums, A, its factor and the inverse of that
# Remembered contexts: all of them, and those of one domain; vectors also in double precision.
COPIES_OF_IMAGES, COPIES_OF_VECTORS = 2, 4
LIBRARY_BYTES = 256 << 20  # libraries that the first update of a process loads
ROUND_BYTES = 48  # a remembered round beside its context
SAMPLED_BYTES = 8  # a context's reference
# One core: matrix products, all other operations, the minimum time of a step.
MULTIPLICATIONS_A_SECOND = 8e9
NUMBERS_A_SECOND = 5e7
STEP_SECONDS = 2e-3
# Multiplications for each number: fitting scales, factoring a PCA's chunk.
SCALING, FACTORING_A_CHUNK = 20.0, 10.0
FACTORING_SECONDS = 5e-10  # times d³: L⁻¹ and θ in double precision
# Decisions as JSON: a number with all its digits; names of fields and punctuation of one arm.
NUMBER_BYTES = 22
SELECT_ARM_BYTES, TARGET_ARM_BYTES, EVENT_ARM_BYTES = 34, 4, 6
DECISION_BYTES = 256  # a decision beside its arms
SECONDS_AN_ARM = 2e-6  # probability, draw and encoding


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper estimates; a policy is part of a snapshot."""

    snapshot_bytes: int
    policy_bytes: int
    learner_bytes: int
    update_bytes: int
    update_seconds: float
    reward_seconds: float  # mean time to fold one reward


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks a policy for: its rows, the arms of all of them, the bytes of those arms' names.

    `is_logged` if each row becomes a decision of the log, which is answered with all scores.
    """

    rows: int
    arms: int
    name_bytes: int
    is_logged: bool


@dataclass(frozen=True, slots=True)
class DecisionBudget:
    """Upper estimates of a request; they are in proportion to its rows."""

    answer_bytes: int
    event_bytes: int
    deciding_seconds: float


# The configuration fields that drive each estimate, the strongest first.
GROWS_WITH: dict[str, tuple[str, ...]] = {
    "snapshot_bytes": ("arm_count", "latent_size", "hidden_sizes"),
    "learner_bytes": ("context_shape", "rebuild_window", "reservoir_size", "latent_size"),
    "update_bytes": ("context_shape", "batch_size", "rebuild_window", "reservoir_size"),
    "update_seconds": ("steps_per_episode", "batch_size", "context_shape", "hidden_sizes"),
    "reward_seconds": ("episode_length", "latent_size", "arm_count", "context_shape"),
}


def estimated(config: BanditConfig, rounds: int | None = None) -> Budget:
    """The budget of a configuration; `rounds` limits how many events the log holds."""
    size = network_size(config)
    memory = _Memory(config, rounds)
    statistics = DOUBLE * config.model_count * (size.latent + 1) * size.latent
    held_out = statistics if config.holdout is HoldoutRule.CONTEXTS else 0
    weights = FLOAT * size.weights
    columns = ROUND_BYTES * 2 * memory.rounds + SAMPLED_BYTES * 4 * memory.sampled
    snapshot = statistics + held_out + 3 * weights + columns
    return Budget(
        snapshot_bytes=snapshot,
        policy_bytes=statistics + weights,
        learner_bytes=3 * (statistics + held_out) + 4 * weights + 2 * memory.bytes + columns,
        update_bytes=_update_bytes(config, size, memory),
        update_seconds=_update_seconds(config, size, memory),
        reward_seconds=_reward_seconds(config, size),
    )


def estimated_decisions(config: BanditConfig, asked: Asked) -> DecisionBudget:
    """The budget of a request to a policy of this configuration."""
    size = network_size(config)
    context_count = asked.arms if config.is_joint else asked.rows
    width_count = asked.arms if config.is_joint else asked.rows * config.arm_count
    multiplications = context_count * size.multiplications + width_count * size.latent**2
    numbers = 4 if asked.is_logged else 1  # probability, mean, bonus and UCB, or the first alone
    names = 2 if asked.is_logged else 1
    arm_bytes = numbers * NUMBER_BYTES
    arm_bytes += SELECT_ARM_BYTES if asked.is_logged else TARGET_ARM_BYTES
    contexts = FLOAT * math.prod(config.context_shape) * context_count
    event_bytes = asked.name_bytes + asked.arms * (3 * NUMBER_BYTES + EVENT_ARM_BYTES) + contexts
    return DecisionBudget(
        answer_bytes=asked.rows * DECISION_BYTES
        + names * asked.name_bytes
        + asked.arms * arm_bytes,
        event_bytes=event_bytes if asked.is_logged else 0,
        deciding_seconds=multiplications / MULTIPLICATIONS_A_SECOND + asked.arms * SECONDS_AN_ARM,
    )


class _Memory:
    """The contexts that a learner remembers."""

    def __init__(self, config: BanditConfig, rounds: int | None) -> None:
        most = math.inf if rounds is None else max(FIRST_ROWS, 2 * rounds)
        self.context_bytes = FLOAT * math.prod(config.context_shape)
        self.rounds = int(min(config.rebuild_window, most))
        self.sampled = int(min(config.reservoir_size, most))
        self.bytes = self.context_bytes * (self.rounds + 2 * self.sampled)


def _update_bytes(config: BanditConfig, size: NetworkSize, memory: _Memory) -> int:
    rows = config.batch_size * _passes(config)
    latents = DOUBLE * 2 * (memory.rounds + memory.sampled) * size.latent
    statistics = DOUBLE * config.model_count * size.latent**2
    copies = COPIES_OF_IMAGES if len(config.context_shape) == 3 else COPIES_OF_VECTORS
    return int(
        LIBRARY_BYTES
        + copies * memory.bytes
        + (COPIES_OF_BATCHES * config.batch_size + rows) * STEPS_AT_ONCE * memory.context_bytes
        + COPIES_OF_ACTIVATIONS * FLOAT * rows * size.activations
        + COPIES_OF_WEIGHTS * FLOAT * size.weights
        + COPIES_OF_STATISTICS * statistics
        + latents
    )


def _update_seconds(config: BanditConfig, size: NetworkSize, memory: _Memory) -> float:
    rows = config.batch_size * _passes(config)
    inputs = memory.context_bytes // FLOAT
    a_row = 3 * size.multiplications / MULTIPLICATIONS_A_SECOND
    a_row += (COPIES_OF_BATCHES * inputs + size.activations) / NUMBERS_A_SECOND
    steps = config.steps_per_episode * (STEP_SECONDS + rows * a_row) if size.weights else 0.0
    encoded = 2 * memory.rounds * (size.multiplications + size.latent**2)
    factored = 2 * config.model_count * size.latent**3
    fitted = _fitting(config, memory)
    return steps + (encoded + factored + fitted) / MULTIPLICATIONS_A_SECOND


def _reward_seconds(config: BanditConfig, size: NetworkSize) -> float:
    """Every A is factored at the start of an episode and again under a new encoder."""
    sums = 2 if config.holdout is HoldoutRule.CONTEXTS else 1
    factored = 2 * sums * config.model_count * size.latent**3
    return FACTORING_SECONDS * factored / config.episode_length


def _fitting(config: BanditConfig, memory: _Memory) -> float:
    """Multiplications to fit scales or principal components, which no gradient learns."""
    inputs = memory.context_bytes // FLOAT
    rows = memory.rounds + 2 * memory.sampled
    if "pca" not in kind_of(config):
        return SCALING * rows * inputs
    chunk = PCA_ROWS + min(config.component_count, inputs)
    return FACTORING_A_CHUNK * rows * inputs * min(chunk, inputs)


def _passes(config: BanditConfig) -> int:
    """Batches that a step encodes: rounds of both domains, target contexts, the teacher's batch."""
    return 3 + (config.consistency_weight > 0)
