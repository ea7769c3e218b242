"""The requests of offline evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.client.calls import Call
from service.codec import answers
from service.records import uuid7


def evaluate(
    experiment: str, candidates: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> Call[answers.EvaluationJob]:
    """Queue an evaluation; a retry is the same job."""
    wanted = answers.EvaluationRequest.model_validate(
        {"request_id": uuid7(), **options, "experiment": experiment, "candidates": candidates}
    )
    body = wanted.model_dump(exclude_none=True)
    return Call("POST", "/evaluations", answers.EvaluationJob, body)


def evaluation(evaluation_id: str) -> Call[answers.EvaluationJob]:
    """Show an evaluation."""
    return Call("GET", f"/evaluations/{evaluation_id}", answers.EvaluationJob)


def cancel_evaluation(evaluation_id: str) -> Call[answers.EvaluationJob]:
    """Cancel an evaluation."""
    path = f"/evaluations/{evaluation_id}/cancel"
    return Call("POST", path, answers.EvaluationJob, {})
