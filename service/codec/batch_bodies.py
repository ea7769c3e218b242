"""The body of /select/batch: read in one pass where each of its rounds is one vector.

That is what most batches are. Otherwise the body is read first and its contexts after it, by what the
experiment takes: whatever else there is to say of a round, or is wrong with it, needs that closer look.
"""

import math
from array import array as packed_array
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from service.codec.bodies import MAX_BATCH, Identifier, MediaType, SelectBatchBody, decode, decoder
from service.codec.contexts import sides_of
from service.codec.decisions import CONTEXT_TYPE, Side, context_bytes
from service.experiment_spec import ExperimentSpec
from service.records import Domain

Sides = list[tuple[Side, ...]]  # of each round


class _PlainSide(Struct, forbid_unknown_fields=True, gc=False):
    context: list[float]


class _PlainRound(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    request_id: Identifier | None = None
    source: _PlainSide | None = None
    target: _PlainSide | None = None


class _PlainBatch(Struct, forbid_unknown_fields=True, gc=False):
    experiment: Identifier
    rounds: Annotated[list[_PlainRound], Meta(min_length=1, max_length=MAX_BATCH)]


class BatchBody:
    """A batch that was asked for."""

    def __init__(self, content: bytes, media: MediaType) -> None:
        """Raises `InvalidRequest` for a body that is none."""
        self._content = content
        self._media = media
        self._plain = _plain(content, media)
        asked = self._whole() if self._plain is None else self._plain
        self.experiment = asked.experiment
        self.request_ids = [each.request_id for each in asked.rounds]

    def sides(self, spec: ExperimentSpec) -> Sides:
        """The sides of each round, source first; at least one."""
        found = None if self._plain is None else _plain_sides(spec, self._plain.rounds)
        if found is not None:
            return found
        return [
            sides_of(spec, each, self._media, f"#/rounds/{index}")
            for index, each in enumerate(self._whole().rounds)
        ]

    def _whole(self) -> SelectBatchBody:
        return decode(self._content, SelectBatchBody, self._media)


def _plain(content: bytes, media: MediaType) -> _PlainBatch | None:
    try:
        found: _PlainBatch = decoder(_PlainBatch, media)(content)
    except (ValueError, RecursionError):
        return None
    return found


def _plain_sides(spec: ExperimentSpec, rounds: Sequence[_PlainRound]) -> Sides | None:
    """None where vectors are not what the experiment takes, or a round has not exactly one."""
    if spec.is_per_arm or len(spec.context_shape) != 1:
        return None
    domains, vectors = list[Domain](), list[list[float]]()
    for each in rounds:
        if each.source is not None and each.target is None:
            domains.append(Domain.SOURCE)
            vectors.append(each.source.context)
        elif each.target is not None and each.source is None:
            domains.append(Domain.TARGET)
            vectors.append(each.target.context)
    sizes = {len(each) for each in vectors}
    if len(vectors) != len(rounds) or sizes != {spec.context_shape[0]}:
        return None
    numbers = np.frombuffer(packed_array("f", list(chain.from_iterable(vectors))), dtype=np.float32)
    if not math.isfinite(np.vdot(numbers, numbers)):
        return None
    content, width = context_bytes(numbers), spec.context_shape[0] * CONTEXT_TYPE.itemsize
    contexts = (content[start : start + width] for start in range(0, len(content), width))
    return [
        (Side(domain, spec.arms, context),)
        for domain, context in zip(domains, contexts, strict=True)
    ]
