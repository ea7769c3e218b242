"""The calls of offline evaluation, as the clients send them."""

from collections.abc import Mapping, Sequence
from typing import Any

from service import evaluation_schemas
from service.client_calls import Call
from service.records import uuid7


def evaluate(
    experiment: str, candidates: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> Call[evaluation_schemas.EvaluationJob]:
    """Queue an evaluation; one that is sent again is the same job."""
    wanted = evaluation_schemas.EvaluationRequest.model_validate(
        {"request_id": uuid7(), **options, "experiment": experiment, "candidates": candidates}
    )
    body = wanted.model_dump(exclude_none=True)
    return Call("POST", "/evaluations", evaluation_schemas.EvaluationJob, body)


def evaluation(evaluation_id: str) -> Call[evaluation_schemas.EvaluationJob]:
    """Show an evaluation."""
    return Call("GET", f"/evaluations/{evaluation_id}", evaluation_schemas.EvaluationJob)


def cancel_evaluation(evaluation_id: str) -> Call[evaluation_schemas.EvaluationJob]:
    """Stop an evaluation."""
    path = f"/evaluations/{evaluation_id}/cancel"
    return Call("POST", path, evaluation_schemas.EvaluationJob, {})
