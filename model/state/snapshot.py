"""Snapshots: the learner's state as bytes, and the bytes read back.

Layout: magic · SHA-256 of the rest · safetensors with a JSON header in its metadata. A snapshot may leave
out contexts, which are in the log, and store only their references.
"""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from model.bandit.confidence import Confidence
from model.bandit.linucb import LinUCB
from model.learner import Learner
from model.memory import COLUMNS, RoundBatch
from model.rounds import Domain, Phase
from model.state.tensor_bytes import Arrays, Pieces, SnapshotError, joined, pieces_of, read
from model.training.networks import Networks
from model.training.optimiser import Moments

MAGIC = b"DABAND\x00\x01"
SCHEMA_VERSION = 1
_DIGEST_BYTES = 32

_NUMBERS = ("version", "offset", "encoder_version", "episode", "pending_episode")
_COUNTS = (
    *(f"{d}_{what}" for d in Domain for what in ("rewards", "contexts")),
    "uploaded_contexts",
    "window",
)
# Left out where it is the number of the newest episode, as in all snapshots of earlier builds.
COVERED = "covered_episodes"


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a snapshot. `rng` needs only the seed: draws are named, not streamed."""

    schema_version: int
    version: int
    offset: int
    encoder_version: int
    episode: int
    pending_episode: int
    phase: str
    counts: dict[str, int]
    config: dict[str, Any]
    config_digest: str
    rng: dict[str, Any]
    platform: str

    @property
    def seed(self) -> int:
        return int(self.rng["seed"])

    def check(self) -> None:
        """Refuse a header that no learner can have written."""
        if self.schema_version != SCHEMA_VERSION:
            raise SnapshotError(f"schema version {self.schema_version}, expected {SCHEMA_VERSION}")
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        numbers |= {f"counts.{name}": self.counts.get(name) for name in _COUNTS}
        numbers["rng.seed"] = self.rng.get("seed")
        for name, value in numbers.items():
            if type(value) is not int or (value < 0 and name != "rng.seed"):
                raise SnapshotError(f"header: {name} is not a count")
        covered = self.counts.get(COVERED, 0)
        if type(covered) is not int:
            raise SnapshotError(f"header: counts.{COVERED} is not a count")
        if self.phase not in set(Phase):
            raise SnapshotError("header: unknown phase")


def to_bytes(learner: Learner, version: int, with_contexts: bool = True) -> bytes:
    """The learner's state; equal states give equal bytes on the same platform."""
    return joined(_sealed(learner, version, with_contexts=with_contexts))


def state_hash(learner: Learner) -> str:
    """SHA-256 of the state without contexts and version: equal folds have equal hashes."""
    return "sha256:" + _digest(_sealed(learner, 0, with_contexts=False)).hex()


def _sealed(learner: Learner, version: int, *, with_contexts: bool) -> Pieces:
    arrays = network_arrays(learner.networks, learner.moments) | _memory_arrays(learner)
    arrays |= confidence_arrays(learner.confidence)
    if with_contexts:
        arrays |= _context_arrays(learner)
    text = json.dumps(asdict(_header(learner, version)), sort_keys=True, separators=(",", ":"))
    body = pieces_of(arrays, {"header": text})
    return [np.frombuffer(MAGIC + _digest(body), dtype=np.uint8), *body]


def _digest(pieces: Pieces) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.data)
    return digest.digest()


def _header(learner: Learner, version: int) -> Header:
    counts = {f"{domain}_rewards": count for domain, count in learner.reward_counts.items()}
    counts |= {f"{domain}_contexts": learner.contexts[domain].count for domain in Domain}
    counts["uploaded_contexts"] = learner.uploaded_count
    counts["window"] = learner.window.count
    if learner.covered_episodes != learner.episode:
        counts[COVERED] = learner.covered_episodes
    return Header(
        schema_version=SCHEMA_VERSION,
        version=version,
        offset=learner.offset,
        encoder_version=learner.encoder_version,
        episode=learner.episode,
        pending_episode=learner.pending.data.episode if learner.pending else 0,
        phase=learner.phase,
        counts=counts,
        config=json.loads(learner.config.to_json()),
        config_digest=learner.config.digest(),
        rng={"scheme": "blake2b", "seed": learner.seed},
        platform=f"{platform.machine()} torch {torch.__version__} numpy {np.__version__}",
    )


def opened(content: bytes) -> tuple[Header, Arrays]:
    """Header and arrays of a snapshot that is complete and finite."""
    start = len(MAGIC) + _DIGEST_BYTES
    if len(content) <= start or not content.startswith(MAGIC):
        raise SnapshotError("not a snapshot of this schema")
    body = memoryview(content)[start:]
    if hashlib.sha256(body).digest() != content[len(MAGIC) : start]:
        raise SnapshotError("checksum does not match: truncated or corrupt")
    try:
        metadata, arrays = read(body)
        header = Header(**json.loads(metadata["header"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError("unreadable header or arrays") from error
    header.check()
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise SnapshotError(f"not finite: {name}")
    return header, arrays


def network_arrays(networks: Networks, moments: Moments) -> Arrays:
    """Networks and their optimiser's moments."""
    tensors = {f"networks.{k}": v for k, v in networks.state_dict().items()}
    tensors |= {f"moments.{k}": v for k, v in moments.items()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def confidence_arrays(found: Confidence | None) -> Arrays:
    """The confidence model, if there is one."""
    return {} if found is None else {f"confidence.{k}": v for k, v in found.arrays().items()}


def _memory_arrays(learner: Learner) -> Arrays:
    statistics = learner.statistics
    arrays: Arrays = {
        **_sums("statistics", statistics),
        **columns_of("window", learner.window.batch()),
    }
    if learner.held_out is not None:
        arrays |= _sums("held_out", learner.held_out)
    if statistics.target_shift is not None:
        arrays["statistics.target_shift"] = statistics.target_shift
    for domain, reservoir in learner.contexts.items():
        arrays[f"contexts.{domain}.references"] = np.array(reservoir.references, dtype=np.int64)
    if learner.pending:
        data = learner.pending.data
        arrays |= columns_of("pending.rounds", data.rounds)
        arrays["pending.source.references"] = data.source.references
        arrays["pending.target.references"] = data.target.references
        arrays["pending.theta"] = learner.pending.theta
        if learner.networks.distilled is not None:
            arrays["pending.seen"] = np.array(data.seen, dtype=np.int64)
    return arrays


def _sums(prefix: str, sums: LinUCB) -> Arrays:
    return {f"{prefix}.{name}": getattr(sums, name) for name in ("gram", "b", "counts")}


def columns_of(prefix: str, rounds: RoundBatch) -> Arrays:
    """Rounds without their contexts."""
    return {f"{prefix}.{name}": getattr(rounds, name) for name in COLUMNS}


def _context_arrays(learner: Learner) -> Arrays:
    held = {"window": learner.window.batch().contexts}
    held |= {
        f"contexts.{d}": reservoir.sample().contexts for d, reservoir in learner.contexts.items()
    }
    if learner.pending:
        data = learner.pending.data
        held |= {"pending.rounds": data.rounds.contexts}
        held |= {"pending.source": data.source.contexts, "pending.target": data.target.contexts}
    return {f"{name}.contexts": tensor.cpu().numpy() for name, tensor in held.items()}
