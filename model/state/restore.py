"""Restores a learner or a policy from a snapshot; everything in it is validated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.bandit.confidence import Confidence
from model.bandit.linucb import LinUCB, NotPositiveDefiniteError
from model.bandit.policy import Policy, PolicyVersion
from model.config import BanditConfig, digest_of, without_retired
from model.encoders.base import Encoder, FrozenEncoder
from model.learner import Learner, TrainingJob
from model.memory import COLUMNS, ContextSample, RoundBatch
from model.rounds import UNKNOWN_PROPENSITY, Domain, Floats, Integers, Phase
from model.state.snapshot import COVERED, Header, opened
from model.state.tensor_bytes import Arrays, SnapshotError
from model.training.episode import TrainingSet
from model.training.networks import Networks
from model.training.optimiser import Moments
from model.training.schedule import ContextCounts
from model.training.target_head import is_distilled

# Finds contexts (n, *shape) by their references (n,).
ContextLookup = Callable[[Integers], Floats]


def restore(
    content: bytes, contexts: ContextLookup | None = None, device: torch.device | str = "cpu"
) -> Learner:
    """The learner of a snapshot; `contexts` looks up contexts that the snapshot leaves out."""
    header, arrays = opened(content)
    learner = _initial(header, device)
    learner.offset, learner.episode = header.offset, header.episode
    learner.encoder_version = header.encoder_version
    learner.phase = Phase(header.phase)
    learner.reward_counts = {domain: header.counts[f"{domain}_rewards"] for domain in Domain}
    learner.covered_episodes = _covered(header, learner)
    learner.uploaded_count = header.counts["uploaded_contexts"]
    load_state(learner.networks, arrays)
    learner.moments = taken_moments(learner.networks, arrays)
    encoder = learner.networks.encoder
    learner.statistics = taken_statistics(learner.config, encoder, arrays)
    if learner.held_out is not None:
        learner.held_out = _taken_sums(learner.config, encoder, arrays, "held_out")
    learner.confidence = taken_confidence(arrays)
    learner.refreeze()
    _load_memory(learner, header, arrays, contexts)
    if arrays:
        raise SnapshotError(f"unknown content: {sorted(arrays)[0]}")
    return learner


def _covered(header: Header, learner: Learner) -> int:
    """Full episodes that no update is due for; one less than there are while a person waits for one."""
    if COVERED not in header.counts:
        return header.episode
    full = sum(learner.reward_counts.values()) // learner.config.episode_length
    if not -1 <= header.counts[COVERED] <= full:
        raise SnapshotError(f"out of range: counts.{COVERED}")
    return header.counts[COVERED]


def restore_policy(content: bytes, device: torch.device | str = "cpu") -> Policy:
    """Only what serving needs of a snapshot."""
    header, arrays = opened(content)
    config, networks = _config(header), _networks(header, arrays)
    encoder = FrozenEncoder.of(networks.served, torch.device(device))
    statistics = taken_statistics(config, networks.encoder, arrays)
    names = PolicyVersion(header.version, header.encoder_version, header.offset)
    confidence = taken_confidence(arrays)
    return Policy(config, header.seed, encoder, statistics.factors(), names, confidence)


def restore_networks(
    content: bytes, device: torch.device | str = "cpu"
) -> tuple[Networks, Moments]:
    """Only the networks of a snapshot and their optimiser's moments, to be activated again."""
    header, arrays = opened(content)
    networks = _networks(header, arrays).to(device)
    return networks, taken_moments(networks, arrays)


def _config(header: Header) -> BanditConfig:
    try:
        config = BanditConfig.from_mapping(without_retired(header.config))
    except (TypeError, ValueError) as error:
        raise SnapshotError(f"configuration: {error}") from error
    # The digest of the stored fields: fields that were added later have their defaults.
    if digest_of(header.config) != header.config_digest:
        raise SnapshotError("configuration does not match its digest")
    return config


def _initial(header: Header, device: torch.device | str) -> Learner:
    config = _config(header)
    try:
        return Learner(config, header.seed, device)
    except ValueError as error:
        raise SnapshotError(f"configuration: {error}") from error


def _networks(header: Header, arrays: Arrays) -> Networks:
    config = _config(header)
    try:
        networks = Networks.initial(config, header.seed, torch.device("cpu"))
    except ValueError as error:
        raise SnapshotError(f"configuration: {error}") from error
    load_state(networks, arrays)
    if left := sorted(name for name in arrays if name.startswith("networks.")):
        raise SnapshotError(f"unknown content: {left[0]}")
    return networks


def _taken(arrays: Arrays, name: str, like: NDArray[Any]) -> NDArray[Any]:
    """Remove an array by name; its type and shape must equal those of `like`."""
    array = _column(arrays, name, like.dtype)
    if array.shape != like.shape:
        raise SnapshotError(f"wrong shape: {name}")
    return array


def _column(arrays: Arrays, name: str, kind: Any) -> NDArray[Any]:
    if name not in arrays:
        raise SnapshotError(f"missing content: {name}")
    array = arrays.pop(name)
    if array.dtype != kind:
        raise SnapshotError(f"wrong type: {name}")
    return array


def load_state(module: nn.Module, arrays: Arrays, prefix: str = "networks.") -> None:
    """Take a module's values out of the arrays."""
    state = {
        name: torch.from_numpy(_taken(arrays, f"{prefix}{name}", tensor.cpu().numpy()))
        for name, tensor in module.state_dict().items()
    }
    module.load_state_dict(state, strict=True)


def taken_moments(networks: Networks, arrays: Arrays) -> Moments:
    """The moments of every parameter that has any: both of them, in its shape, and the step."""
    moments: Moments = {}
    for name, parameter in networks.named_parameters():
        if f"moments.{name}.first" in arrays or f"moments.{name}.second" in arrays:
            for part in ("first", "second"):
                like = parameter.detach().cpu().numpy()
                array = _taken(arrays, f"moments.{name}.{part}", like)
                moments[f"{name}.{part}"] = torch.from_numpy(array).to(parameter.device)
    if moments:
        step = _taken(arrays, "moments.step", np.zeros((), dtype=np.float32))
        moments["step"] = torch.from_numpy(step)
    if left := sorted(name for name in arrays if name.startswith("moments.")):
        raise SnapshotError(f"unknown content: {left[0]}")
    return moments


def taken_confidence(arrays: Arrays) -> Confidence | None:
    """The confidence model of a snapshot, if it has one; that of recipes before the fifth is unknown."""
    found = {name: arrays.pop(name) for name in list(arrays) if name.startswith("confidence.")}
    if not found or "confidence.prototypes" in found:
        return None
    try:
        plain = {name.removeprefix("confidence."): array for name, array in found.items()}
        return Confidence.from_arrays(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"confidence: {error}") from error


def taken_statistics(config: BanditConfig, encoder: Encoder, arrays: Arrays) -> LinUCB:
    """The served (A, b) over the encoder's latents, positive definite."""
    shift = None
    if is_distilled(encoder, config):
        like = np.empty((config.model_count, encoder.latent_size))
        shift = _taken(arrays, "statistics.target_shift", like)
    return _taken_sums(config, encoder, arrays, "statistics", shift)


def _taken_sums(
    config: BanditConfig,
    encoder: Encoder,
    arrays: Arrays,
    prefix: str,
    shift: NDArray[np.float64] | None = None,
) -> LinUCB:
    shape = (config.model_count, encoder.latent_size)
    gram = _taken(arrays, f"{prefix}.gram", np.empty((*shape, encoder.latent_size)))
    b = _taken(arrays, f"{prefix}.b", np.empty(shape))
    counts = _taken(arrays, f"{prefix}.counts", np.empty(shape[:1], dtype=np.int64))
    if not np.array_equal(gram, gram.mT):
        raise SnapshotError("A is not symmetric")
    if (counts < 0).any():
        raise SnapshotError(f"{prefix}: negative count")
    statistics = LinUCB.of_sums(gram, b, counts, config.ridge, shift)
    try:
        statistics.factors()
    except NotPositiveDefiniteError as error:
        raise SnapshotError("A is not positive definite") from error
    return statistics


def _check_range(columns: Arrays, name: str, low: float, high: float) -> None:
    column = columns[name]
    if ((column < low) | (column > high)).any():
        raise SnapshotError(f"out of range: {name}")


class _Loader:
    """Takes rounds and context samples out of a snapshot, with contexts from the snapshot or the log."""

    def __init__(self, learner: Learner, arrays: Arrays, lookup: ContextLookup | None) -> None:
        self._config = learner.config
        self._device = learner.device
        self._arrays = arrays
        self._lookup = lookup

    def rounds(self, prefix: str) -> RoundBatch:
        """The rounds under a prefix; values that could not have been folded are an error."""
        columns = {
            name: _column(self._arrays, f"{prefix}.{name}", kind) for name, kind in COLUMNS.items()
        }
        if len({column.shape for column in columns.values()}) != 1:
            raise SnapshotError(f"columns differ in length: {prefix}")
        if len(columns["arms"]) > self._config.rebuild_window:
            raise SnapshotError(f"too many rounds: {prefix}")
        _check_range(columns, "arms", 0, self._config.model_count - 1)
        _check_range(columns, "rewards", 0, 1)
        _check_range(columns, "propensities", UNKNOWN_PROPENSITY, 1)
        return RoundBatch(self._contexts(prefix, columns["references"]), **columns)

    def sample(self, prefix: str) -> ContextSample:
        """The contexts under a prefix."""
        references = _column(self._arrays, f"{prefix}.references", np.int64)
        if references.ndim != 1 or len(references) > self._config.reservoir_size:
            raise SnapshotError(f"too many contexts: {prefix}")
        return ContextSample(self._contexts(prefix, references), references)

    def _contexts(self, prefix: str, references: Integers) -> torch.Tensor:
        name = f"{prefix}.contexts"
        if name not in self._arrays and self._lookup:
            contexts: Floats = self._lookup(references)
            self._arrays[name] = contexts
        like = np.zeros((len(references), *self._config.context_shape), dtype=np.float32)
        contexts = _taken(self._arrays, name, like)
        if not np.isfinite(contexts).all():
            raise SnapshotError(f"not finite: {name}")
        return torch.from_numpy(contexts.copy()).to(self._device)


def _load_memory(
    learner: Learner, header: Header, arrays: Arrays, lookup: ContextLookup | None
) -> None:
    loader = _Loader(learner, arrays, lookup)
    rounds = loader.rounds("window")
    if len(rounds) != min(header.counts["window"], learner.config.rebuild_window):
        raise SnapshotError("window: its length does not match its count")
    learner.window.load(rounds, header.counts["window"])
    for domain, reservoir in learner.contexts.items():
        reservoir.load(loader.sample(f"contexts.{domain}"), header.counts[f"{domain}_contexts"])
    if header.pending_episode:
        seen = header.counts["window"]
        if learner.networks.distilled is not None:
            seen = int(_taken(arrays, "pending.seen", np.zeros((), dtype=np.int64)))
            if not 0 <= seen <= header.counts["window"]:
                raise SnapshotError("out of range: pending.seen")
        source, target = (loader.sample(f"pending.{domain}") for domain in Domain)
        data = TrainingSet(
            header.pending_episode,
            seen,
            loader.rounds("pending.rounds"),
            source,
            target,
            ContextCounts(len(source.references), len(target.references)),  # or more
        )
        theta = _taken(arrays, "pending.theta", learner.statistics.b)
        learner.pending = TrainingJob(
            data, learner.networks, learner.moments, theta, learner.config, learner.seed
        )
