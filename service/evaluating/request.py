"""The request of an evaluation and its validation."""

import json
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from model import Domain
from service.errors import refuse
from service.evaluating.candidates import CandidateSpec

MAX_CANDIDATES = 32


class EvaluationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /evaluations, as sent and as stored."""

    experiment: str
    candidates: Annotated[tuple[CandidateSpec, ...], Meta(min_length=1, max_length=MAX_CANDIDATES)]
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    domain: Domain = Domain.SOURCE
    target: bool = False
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    request_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None

    def check(self) -> None:
        """Refuse a request that no log could satisfy."""
        for index, candidate in enumerate(self.candidates):
            pointer = f"#/candidates/{index}"
            if candidate.kind == "file":
                refuse("A file can only be evaluated on the command line.", f"{pointer}/kind")
            if (missing := candidate.missing()) is not None:
                refuse("Required for this kind of candidate.", f"{pointer}/{missing}")
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) != len(names):
            refuse("Candidates must be unique.", "#/candidates")
        if self.target and self.domain is not Domain.SOURCE:
            refuse("A target value needs `domain` source.", "#/target")

    def to_json(self) -> str:
        """The stored JSON text; equal requests give equal text."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)


class LogFile(Struct, frozen=True):
    """How a log file is read; `min_propensity` is the smallest that its policy had."""

    format: str = "jsonl"
    min_propensity: float | None = None
    skip_bad: bool = False


class StoredRequest(EvaluationRequest, frozen=True, kw_only=True):
    """The request of a job: over the experiment's log, or over a file that was sent."""

    file: LogFile | None = None


def stored_request(text: str) -> StoredRequest:
    """The request that `to_json` wrote."""
    return msgspec.json.decode(text, type=StoredRequest)
