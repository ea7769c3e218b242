"""The size of a configuration's networks and the multiplications of one decision."""

import math
from dataclasses import dataclass
from itertools import pairwise

from model.config import ENSEMBLE, BanditConfig
from model.encoders.ensemble import aligned_count, fitting_count
from model.encoders.images import Conv, cells
from model.encoders.kinds import ENCODERS, kind_of

DISCRIMINATOR_SIZE = 128  # of each hidden layer of g


def decision_multiplications(config: BanditConfig) -> int:
    """Multiplications of one decision: a forward pass of each context and the width of each arm."""
    size = network_size(config)
    context_count = config.arm_count if config.is_joint else 1
    return context_count * size.multiplications + config.arm_count * size.latent**2


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """Weights of all networks; multiplications and activations of one context's forward pass."""

    latent: int
    weights: int
    multiplications: int
    activations: int


def network_size(config: BanditConfig) -> NetworkSize:
    """The size of a configuration's networks."""
    kind = kind_of(config)
    inputs = math.prod(config.context_shape)
    if kind == "identity":
        return NetworkSize(inputs, 0, 0, inputs)
    if kind == "scaled":
        return NetworkSize(inputs + 1, 4 * inputs, inputs, inputs)
    components = min(config.component_count, inputs)
    if kind in ("pca", "scaled-pca"):
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
    return _with_other_networks(config, weights, multiplications, activations + inputs)


def _with_other_networks(
    config: BanditConfig, weights: int, multiplications: int, activations: int
) -> NetworkSize:
    """The size with the head, the discriminator and the slow copies added to an encoder."""
    latent, members = config.latent_size, _members(config)
    head = latent * config.model_count
    judge = aligned_count(members) * (latent // members + DISCRIMINATOR_SIZE) * DISCRIMINATOR_SIZE
    slow = (config.consistency_weight > 0) + (config.average_decay > 0)
    return NetworkSize(
        latent=latent,
        weights=(1 + slow) * (weights + head) + judge,
        multiplications=multiplications + head + judge,
        activations=activations + members * (config.model_count + 2 * DISCRIMINATOR_SIZE),
    )


def _members(config: BanditConfig) -> int:
    if kind_of(config) != ENSEMBLE:
        return 1
    return fitting_count(config.tower_count, config.latent_size)


def _of_vectors(config: BanditConfig, kind: str) -> tuple[int, int]:
    """Weights and activations of one encoder of vectors."""
    inputs, members = math.prod(config.context_shape), _members(config)
    if kind == "pca-mlp":
        inputs = min(config.component_count, inputs)
    sizes = (inputs, *config.hidden_sizes, config.latent_size // members)
    weights = members * sum((a + 1) * b for a, b in pairwise(sizes))
    return weights, members * sum(sizes)


def _of_images(config: BanditConfig, encoder: type[Conv]) -> tuple[int, int, int]:
    """Weights, multiplications and activations of one encoder of images."""
    if len(config.context_shape) != 3:
        return 0, 0, 0  # the encoder itself refuses this shape
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
