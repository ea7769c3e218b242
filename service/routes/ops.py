"""Operations: liveness, readiness, metrics, and the explanations of problems."""

import asyncio

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from service.codec import answers
from service.errors import NotReady, problem_types
from service.routes import ServicesDep, json_answer
from service.routes.documentation import problems
from service.services import Services

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=answers.Health, responses=problems())
async def healthz() -> Response:
    """The process is alive, but not necessarily ready."""
    return json_answer({"status": "ok"})


@router.get("/readyz", response_model=answers.Ready, responses=problems())
async def readyz(services: ServicesDep) -> Response:
    """Whether the process accepts requests: not draining, all tasks alive, the database writable."""
    await check_ready(services)
    return json_answer({"status": "ready"})


async def check_ready(services: Services) -> None:
    """Raise what keeps the process from accepting requests."""
    if services.readiness.is_draining:
        raise NotReady("The service is shutting down.")
    if services.readiness.dead_task is not None:
        raise NotReady("A background task has died.", task=services.readiness.dead_task)
    await services.database.check_writable()


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format"}},
)
async def metrics(services: ServicesDep) -> Response:
    """All metrics, of all serving processes."""
    # In a thread: merging the metrics of many processes would block the event loop too long.
    exposition = await asyncio.to_thread(services.metrics.exposition)
    return Response(exposition, headers={"Content-Type": services.metrics.content_type})


@router.get("/problems/{slug}", response_model=answers.ProblemType, responses=problems(404))
async def problem(slug: str) -> Response:
    """The explanation of a problem type."""
    kind = problem_types().get(slug)
    if kind is None:
        raise HTTPException(404)
    return json_answer(kind().problem())
