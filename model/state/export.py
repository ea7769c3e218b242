"""The target policy as a file: safetensors with a JSON manifest in its metadata.

The file holds the encoder, (A, b) and the confidence model, without training state. Opened on the same
platform, it gives the served policy bit for bit.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from model.bandit.policy import Policy, PolicyVersion
from model.config import BanditConfig, without_retired
from model.encoders.base import FrozenEncoder
from model.encoders.first_weights import first_weights
from model.encoders.kinds import build_encoder
from model.state.manifest import FORMAT, FORMAT_VERSION, manifest_of
from model.state.restore import load_state, taken_confidence, taken_statistics
from model.state.snapshot import opened
from model.state.tensor_bytes import Arrays, SnapshotError, joined, pieces_of, read

_ENCODER = "networks.encoder."
_SLOW = ("networks.teacher.encoder.", "networks.average.encoder.")  # the last that exists is served
_KEPT = (_ENCODER, "statistics.", "confidence.")


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """A policy from a file, with the file's manifest."""

    policy: Policy
    manifest: dict[str, Any]


def exported(snapshot: bytes, facts: Mapping[str, Any]) -> bytes:
    """The policy file of a snapshot; `facts` are added to its manifest."""
    header, arrays = opened(snapshot)
    # Store the served encoder under the same name, whichever copy it is.
    for prefix in _SLOW:
        served = {n: array for n, array in arrays.items() if n.startswith(prefix)}
        arrays |= {_ENCODER + n.removeprefix(prefix): array for n, array in served.items()}
    kept = {
        name: np.asarray(array, order="C")
        for name, array in sorted(arrays.items())
        if name.startswith(_KEPT)
    }
    manifest = {
        **facts,
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": header.version,
        "encoder_version": header.encoder_version,
        "offset": header.offset,
        "phase": header.phase,
        "seed": header.seed,
        "config": header.config,
        "platform": header.platform,
        "arrays_sha256": _digest(kept),
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return joined(pieces_of(kept, {"manifest": text}))


def open_exported(content: bytes) -> ExportedPolicy:
    """The policy of a file; everything in it is validated."""
    manifest = manifest_of(content)
    try:
        arrays = read(content)[1]
        config = BanditConfig.from_mapping(without_retired(manifest["config"]))
        names = (manifest["version"], manifest["encoder_version"], manifest["offset"])
        version, seed = PolicyVersion(*map(int, names)), int(manifest["seed"])
        if _digest(arrays) != manifest["arrays_sha256"]:
            raise SnapshotError("checksum does not match: the file was changed")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"unreadable policy file: {error}") from error
    return ExportedPolicy(_policy(config, seed, version, arrays), manifest)


def _policy(config: BanditConfig, seed: int, version: PolicyVersion, arrays: Arrays) -> Policy:
    with first_weights(seed, "exported encoder"):
        encoder = build_encoder(config).eval()
    load_state(encoder, arrays, _ENCODER)
    frozen = FrozenEncoder.of(encoder, torch.device("cpu"))
    factors = taken_statistics(config, encoder, arrays).factors()
    confidence = taken_confidence(arrays)
    if arrays:
        raise SnapshotError(f"unknown content: {sorted(arrays)[0]}")
    return Policy(config, seed, frozen, factors, version, confidence)


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
