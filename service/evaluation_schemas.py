"""The shapes of evaluations, as they are documented and as the client reads them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from service.request_schemas import Identifier, Method, Name, Request
from service.schemas import Schema

EvaluationStatus = Literal["queued", "running", "done", "failed", "cancelled"]


class CandidateRequest(Request):
    """A policy to evaluate: `uniform`, an `arm`, a stored `version`, or a `system` that learns."""

    kind: Literal["uniform", "arm", "version", "system"] = Field(examples=["uniform"])
    arm: Identifier | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    method: Method | None = None
    config: dict[str, Any] = Field(default={}, examples=[{"alpha": 0.2}])


class EvaluationRequest(Request):
    """An offline evaluation to queue."""

    experiment: Name = Field(examples=["doses"])
    candidates: Annotated[list[CandidateRequest], Field(min_length=1, max_length=32)]
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    domain: Literal["source", "target"] = "source"
    target: bool = Field(default=False, description="value candidates in the target as well")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    request_id: Identifier | None = None


class CancelRequest(Request):
    """Nothing needs to be said to cancel."""


class Progress(Schema):
    """Events of the log that were read, of those there were at the start."""

    done: int
    total: int


class EvaluationJob(Schema):
    """An evaluation and, once it is done, its result."""

    evaluation_id: str
    experiment: str
    status: EvaluationStatus
    progress: Progress
    created_at: datetime
    ended_at: datetime | None
    problem: str | None
    request: dict[str, Any]
    result: dict[str, Any] | None


class EvaluationList(Schema):
    """The newest evaluations first, without their results."""

    evaluations: list[EvaluationJob]
