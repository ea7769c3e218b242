"""The log as a file, written while it is read."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from service.codec.bodies import MediaType
from service.codec.log_answers import LogFilters
from service.evaluating.experiment_log import decisions_of, header_of
from service.experiment_spec import ExperimentSpec
from service.formats import jsonl
from service.formats.records import LoggedDecision
from service.records import Experiment
from service.routes import ExperimentDep, ServicesDep
from service.routes.documentation import problems
from service.services import Services

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])


@router.get(
    "/log/export",
    response_class=Response,
    responses={
        200: {"description": "A log in JSON lines", "content": {MediaType.JSON_LINES.value: {}}},
        **problems(404, 409),
    },
)
async def export_log(
    experiment: ExperimentDep, services: ServicesDep, wanted: Annotated[LogFilters, Query()]
) -> Response:
    """All decisions with contexts, probabilities and rewards, the oldest first, as `daband evaluate` reads them."""
    return await exported(services, experiment, wanted)


async def exported(services: Services, experiment: Experiment, wanted: LogFilters) -> Response:
    """The log as a download; archived files are checked first, because a begun answer has no status."""
    await services.event_log.check_archived(experiment.experiment_id, experiment.head_offset)
    spec = ExperimentSpec.of(experiment)
    headers = {"Content-Disposition": f'attachment; filename="{spec.name}.jsonl"'}
    return StreamingResponse(
        _lines(services, experiment, spec, wanted), headers=headers, media_type=MediaType.JSON_LINES
    )


async def _lines(
    services: Services, experiment: Experiment, spec: ExperimentSpec, wanted: LogFilters
) -> AsyncIterator[bytes]:
    """The header, then a page of the log at a time."""
    header = header_of(spec)
    yield jsonl.first_line(header)
    async for page in decisions_of(experiment, services.event_log, experiment.head_offset):
        yield b"".join(jsonl.line(each, header) for _, each in page if _is_wanted(each, wanted))


def _is_wanted(decision: LoggedDecision, wanted: LogFilters) -> bool:
    is_rewarded = decision.reward is not None
    return (
        wanted.domain in (None, decision.domain)
        and wanted.arm in (None, decision.arm)
        and wanted.rewarded in (None, is_rewarded)
    )
