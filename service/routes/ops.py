"""What operators and their tools ask: liveness, readiness, metrics, and what a problem means."""

import asyncio

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from service.codec import answers
from service.errors import NotReady, problem_types
from service.routes import ServicesDep, json_answer
from service.routes.documentation import problems

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=answers.Health, responses=problems())
async def healthz() -> Response:
    """The process lives; it may still not be ready."""
    return json_answer({"status": "ok"})


@router.get("/readyz", response_model=answers.Ready, responses=problems())
async def readyz(services: ServicesDep) -> Response:
    """Whether requests are welcome: not draining, all tasks alive, the database can be written."""
    if services.readiness.is_draining:
        raise NotReady("The service is shutting down.")
    if services.readiness.dead_task is not None:
        raise NotReady("A background task has died.", task=services.readiness.dead_task)
    await services.database.check_writable()
    return json_answer({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format"}},
)
async def metrics(services: ServicesDep) -> Response:
    """All metrics, of all serving processes."""
    # In a thread: merging the numbers of many processes takes longer than a decision may.
    exposition = await asyncio.to_thread(services.metrics.exposition)
    return Response(exposition, headers={"Content-Type": services.metrics.content_type})


@router.get("/problems/{slug}", response_model=answers.ProblemType, responses=problems(404))
async def problem(slug: str) -> Response:
    """What a kind of problem means."""
    kind = problem_types().get(slug)
    if kind is None:
        raise HTTPException(404)
    return json_answer(kind().problem())
