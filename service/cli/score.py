"""Scores contexts with a policy file, without a service: the endpoint's decisions bit for bit.

Batches have the size of a request, because batches of other sizes may round differently.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Raw

from model import ContextKind, ExportedPolicy, SnapshotError, open_exported
from service.codec.bodies import MAX_BATCH, MediaType, TargetSelectBody
from service.codec.target_contexts import TargetRows, binary_target_rows, target_rows
from service.deciding.target import TargetDecision, decided, selected
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec


class ScoringError(Exception):
    """The policy file or the contexts are no good; the message says why."""


def scored_lines(policy: Path, contexts: Path, floor: float | None) -> Iterator[bytes]:
    """The decision of each context of a file, as a line of JSON each."""
    try:
        found = open_exported(policy.read_bytes())
        for each in scored(found, contexts, floor):
            yield msgspec.json.encode(each) + b"\n"
    except (SnapshotError, ValueError) as error:
        raise ScoringError(str(error)) from error
    except InvalidRequest as refusal:
        places = (f"{each['pointer']} {each['detail']}" for each in refusal.members["errors"])
        raise ScoringError("; ".join(places)) from refusal


def scored(
    found: ExportedPolicy, contexts: Path, floor: float | None = None, batch: int = MAX_BATCH
) -> Iterator[TargetDecision]:
    """The decision of each context of a file: npy, or JSON lines."""
    spec = _spec(found)
    for groups in _batches(spec, contexts, batch):
        selections = [selected(found.policy, spec, group) for group in groups]
        yield from decided(spec, groups, selections, floor)


def _spec(found: ExportedPolicy) -> ExperimentSpec:
    manifest = found.manifest
    return ExperimentSpec(
        name=manifest["experiment"],
        arms=tuple(manifest["arms"]),
        context_kind=ContextKind(manifest["context"]["kind"]),
        context_shape=tuple(manifest["context"]["shape"]),
        fallback_arm=manifest["fallback_arm"],
    )


def _batches(spec: ExperimentSpec, contexts: Path, size: int) -> Iterator[list[TargetRows]]:
    if contexts.suffix == ".npy":
        array = np.load(contexts, mmap_mode="r")
        for start in range(0, len(array), size):
            with np.errstate(over="ignore"):  # values beyond float32 are refused later
                rows = np.ascontiguousarray(array[start : start + size], dtype="<f4")
            yield binary_target_rows(spec, rows.tobytes(), MediaType.BYTES, None)
        return
    with contexts.open("rb") as stream:
        lines = (line.strip() for line in stream)
        full = (line for line in lines if line)
        while some := list(islice(full, size)):
            body = TargetSelectBody(
                experiment=spec.name, contexts=Raw(b"[" + b",".join(some) + b"]")
            )
            yield target_rows(spec, body, MediaType.JSON)
