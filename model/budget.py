"""What an experiment needs at most, in bytes and seconds, by its configuration alone.

The figures are upper estimates for one core of a CPU. They are made before anything is allocated, so
that an experiment that no process could carry is refused when it is declared.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from model.config import BanditConfig
from model.encoder_kinds import ENCODERS, kind_of
from model.image_encoder import Conv, cells
from model.towers import aligned_count, fitting_count
from model.training import STEPS_AT_ONCE

FLOAT, DOUBLE = 4, 8
DISCRIMINATOR_SIZE = 128
# Rows of contexts and activations that one step holds: forward, kept for backward, gradients.
COPIES_OF_ACTIVATIONS = 6
COPIES_OF_BATCHES = 6  # while a view is made: noise, a mask and sums as large as the contexts
COPIES_OF_WEIGHTS = 8  # before, after, gradients, two moments before and after, the message
COPIES_OF_STATISTICS = 4  # sums, A, its factor and the inverse of that
# Remembered contexts: as they come, those of one domain apart; vectors also in double precision.
COPIES_OF_IMAGES, COPIES_OF_VECTORS = 2, 4
LIBRARY_BYTES = 256 << 20  # what the first update of a process loads and keeps
ROUND_BYTES = 48  # a remembered round beside its context
SAMPLED_BYTES = 8  # a context's reference
# Of one core: matrix products, all other operations, the least time of a step.
MULTIPLICATIONS_A_SECOND = 8e9
NUMBERS_A_SECOND = 5e7
STEP_SECONDS = 2e-3
FACTORING_SECONDS = 5e-10  # of d³, for L⁻¹ and θ in double precision


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper estimates; a policy is a part of what a snapshot holds."""

    snapshot_bytes: int
    policy_bytes: int
    learner_bytes: int
    update_bytes: int
    update_seconds: float
    reward_seconds: float  # of folding one, on average


# The fields of a configuration to look at when an estimate is too large, the weightiest first.
GROWS_WITH: dict[str, tuple[str, ...]] = {
    "snapshot_bytes": ("arm_count", "latent_size", "hidden_sizes"),
    "learner_bytes": ("context_shape", "rebuild_window", "reservoir_size", "latent_size"),
    "update_bytes": ("context_shape", "batch_size", "rebuild_window", "reservoir_size"),
    "update_seconds": ("steps_per_episode", "batch_size", "context_shape", "hidden_sizes"),
    "reward_seconds": ("episode_length", "latent_size", "arm_count", "context_shape"),
}


def estimated(config: BanditConfig, rounds: int | None = None) -> Budget:
    """The budget of a configuration; with `rounds`, once the log holds at most so many events."""
    size = network_size(config)
    memory = _Memory(config, rounds)
    statistics = DOUBLE * config.model_count * (size.latent + 1) * size.latent
    weights = FLOAT * size.weights
    columns = ROUND_BYTES * 2 * memory.rounds + SAMPLED_BYTES * 4 * memory.sampled
    snapshot = statistics + 3 * weights + columns
    return Budget(
        snapshot_bytes=snapshot,
        policy_bytes=statistics + weights,
        learner_bytes=3 * statistics + 4 * weights + 2 * memory.bytes + columns,
        update_bytes=_update_bytes(config, size, memory),
        update_seconds=_update_seconds(config, size, memory),
        reward_seconds=_reward_seconds(config, size),
    )


def decision_multiplications(config: BanditConfig) -> int:
    """Of one decision: a forward pass of each context, and the width of each arm."""
    size = network_size(config)
    context_count = config.arm_count if config.is_joint else 1
    return context_count * size.multiplications + config.arm_count * size.latent**2


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """Of all networks together: weights; of one context: multiplications forward, and activations."""

    latent: int
    weights: int
    multiplications: int
    activations: int


def network_size(config: BanditConfig) -> NetworkSize:
    """How large the networks of a configuration are."""
    kind = kind_of(config)
    inputs = math.prod(config.context_shape)
    if kind == "identity":
        return NetworkSize(inputs, 0, 0, inputs)
    components = min(config.component_count, inputs)
    if kind == "pca":
        return NetworkSize(components, inputs * components, inputs * components, inputs)
    encoder = ENCODERS[kind]
    if isinstance(encoder, type) and issubclass(encoder, Conv):
        weights, multiplications, activations = _of_images(config, encoder)
    else:
        weights, activations = _of_vectors(config, kind)
        multiplications = weights
    if kind == "pca-mlp":
        weights, multiplications = (
            each + inputs * components for each in (weights, multiplications)
        )
    return _with_companions(config, weights, multiplications, activations + inputs)


def _with_companions(
    config: BanditConfig, weights: int, multiplications: int, activations: int
) -> NetworkSize:
    """Head, discriminator and slow copies beside an encoder."""
    latent, towers = config.latent_size, _towers(config)
    head = latent * config.model_count
    judge = aligned_count(towers) * (latent // towers + DISCRIMINATOR_SIZE) * DISCRIMINATOR_SIZE
    slow = (config.consistency_weight > 0) + (config.average_decay > 0)
    return NetworkSize(
        latent=latent,
        weights=(1 + slow) * (weights + head) + judge,
        multiplications=multiplications + head + judge,
        activations=activations + towers * (config.model_count + 2 * DISCRIMINATOR_SIZE),
    )


def _towers(config: BanditConfig) -> int:
    if kind_of(config) != "committee":
        return 1
    return fitting_count(config.tower_count, config.latent_size)


def _of_vectors(config: BanditConfig, kind: str) -> tuple[int, int]:
    """Weights and activations of one encoder of vectors."""
    inputs, towers = math.prod(config.context_shape), _towers(config)
    if kind == "pca-mlp":
        inputs = min(config.component_count, inputs)
    sizes = (inputs, *config.hidden_sizes, config.latent_size // towers)
    weights = towers * sum((a + 1) * b for a, b in pairwise(sizes))
    return weights, towers * sum(sizes)


def _of_images(config: BanditConfig, encoder: type[Conv]) -> tuple[int, int, int]:
    """Weights, multiplications and activations of one encoder of images."""
    if len(config.context_shape) != 3:
        return 0, 0, 0  # refused elsewhere
    before, height, width = config.context_shape
    weights = multiplications = activations = 0
    for layer in encoder.layers:
        height, width = -(-height // layer.stride), -(-width // layer.stride)
        kernel = layer.kernel**2 * before * layer.channels
        weights += kernel
        multiplications += kernel * height * width
        activations += layer.channels * height * width
        if layer.is_pooled:
            height, width = max(1, height // 2), max(1, width // 2)
        before = layer.channels
    last = before * math.prod(map(cells, config.context_shape[1:])) * config.latent_size
    return weights + last, multiplications + last, activations


class _Memory:
    """The contexts that a learner remembers."""

    def __init__(self, config: BanditConfig, rounds: int | None) -> None:
        most = math.inf if rounds is None else max(64, 2 * rounds)  # blocks grow by doubling
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
    """Every A is factored at the beginning of an episode and again under a new encoder."""
    factored = 2 * config.model_count * size.latent**3
    return FACTORING_SECONDS * factored / config.episode_length


def _fitting(config: BanditConfig, memory: _Memory) -> float:
    """Multiplications to fit what is not learned by gradient: scales, or principal components."""
    inputs = memory.context_bytes // FLOAT
    rows = memory.rounds + 2 * memory.sampled
    if not kind_of(config).startswith("pca"):
        return 20.0 * rows * inputs
    chunk = 1024 + min(config.component_count, inputs)
    return 10.0 * rows * inputs * min(chunk, inputs)


def _passes(config: BanditConfig) -> int:
    """Batches that a step encodes: rounds of both domains, target contexts, and the teacher's view."""
    return 3 + (config.consistency_weight > 0)
