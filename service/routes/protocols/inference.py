"""Open Inference Protocol (KServe V2): the target policy of an experiment is a model."""

from collections.abc import Iterator
from importlib.metadata import version as installed_version
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from service.codec.bodies import MediaType
from service.codec.protocols import schemas
from service.codec.protocols.inference import (
    HEADER_LENGTH,
    answer_of,
    check_askable,
    contexts_of,
    inference_of,
    inputs_of,
    outputs_of,
)
from service.codec.wire import Answer
from service.deciding.policies import Served
from service.deciding.target import TargetAnswer
from service.http.problems import response_of
from service.routes import ServedDep, ServicesDep, beside_requests, json_answer
from service.routes.documentation import Responses, body, errors_as
from service.routes.ops import check_ready
from service.routes.snapshots import MAX_VERSION
from service.services import Services

router = APIRouter(prefix="/v2", tags=["open inference"])
NAME = "daband"
EXTENSIONS = ["binary_tensor_data"]
INFER = body(schemas.InferRequest, structured=(MediaType.JSON,), binary=(MediaType.BYTES,))

Version = Annotated[int, Path(ge=0, le=MAX_VERSION)]


def errors(*statuses: int, has_body: bool = False) -> Responses:
    """The errors of a route, in the protocol's shape."""
    return errors_as(schemas.InferenceError, *statuses, has_body=has_body)


async def version_of(version: Version, current: ServedDep, services: ServicesDep) -> Served:
    """The model in the path, in the version in the path."""
    return await services.versions.served(current, version)


VersionDep = Annotated[Served, Depends(version_of)]


@router.get("", response_model=schemas.ServerMetadata, responses=errors())
async def server() -> Response:
    """What serves: name, version, extensions of the protocol."""
    version = installed_version(NAME)
    return json_answer({"name": NAME, "version": version, "extensions": EXTENSIONS})


@router.get("/health/live", response_model=schemas.ServerLive, responses=errors())
async def live() -> Response:
    """The process is alive, but not necessarily ready."""
    return json_answer({"live": True})


@router.get("/health/ready", response_model=schemas.ServerReady, responses=errors())
async def ready(services: ServicesDep) -> Response:
    """Whether the process accepts requests."""
    await check_ready(services)
    return json_answer({"ready": True})


@router.get("/models/{name}", response_model=schemas.ModelMetadata, responses=errors(404))
async def model(current: ServedDep, services: ServicesDep) -> Response:
    """An experiment as a model: its versions, inputs and outputs."""
    return await _metadata(current, services)


@router.get(
    "/models/{name}/versions/{version}",
    response_model=schemas.ModelMetadata,
    responses=errors(404, 409),
)
async def model_version(served: VersionDep, services: ServicesDep) -> Response:
    """The same if there is this version."""
    return await _metadata(served, services)


@router.get("/models/{name}/ready", response_model=schemas.ModelReady, responses=errors(404))
async def model_ready(current: ServedDep) -> Response:
    """Whether the current version can be asked."""
    return _ready(current)


@router.get(
    "/models/{name}/versions/{version}/ready",
    response_model=schemas.ModelReady,
    responses=errors(404, 409),
)
async def model_version_ready(served: VersionDep) -> Response:
    """Whether this version can be asked."""
    return _ready(served)


@router.post(
    "/models/{name}/infer",
    response_model=schemas.InferAnswer,
    responses=errors(404, has_body=True),
    openapi_extra=INFER,
)
async def infer(current: ServedDep, request: Request, services: ServicesDep) -> Response:
    """Decide for target contexts with the current version, as `/target/select` does."""
    return await _inferred(current, request, services)


@router.post(
    "/models/{name}/versions/{version}/infer",
    response_model=schemas.InferAnswer,
    responses=errors(404, 409, has_body=True),
    openapi_extra=INFER,
)
async def infer_version(served: VersionDep, request: Request, services: ServicesDep) -> Response:
    """Decide for target contexts with this version."""
    return await _inferred(served, request, services)


async def _metadata(served: Served, services: Services) -> Response:
    stored = await services.snapshots.list(served.experiment.experiment_id)
    versions = sorted({served.version, *(each.version for each in stored)}, reverse=True)
    spec = served.spec
    return json_answer(
        {
            "name": spec.name,
            "versions": [str(each) for each in versions],
            "platform": NAME,
            "inputs": inputs_of(spec),
            "outputs": outputs_of(spec),
        }
    )


def _ready(served: Served) -> Response:
    check_askable(served.spec)
    return json_answer({"name": served.spec.name, "ready": True})


async def _inferred(served: Served, request: Request, services: Services) -> Response:
    spec, content = served.spec, await request.body()
    inference = inference_of(content, request.headers.get(HEADER_LENGTH))
    groups = await beside_requests(spec, lambda: contexts_of(spec, inference.inputs), len(content))
    floor = inference.body.parameters.confidence_floor

    def encoded(answer: TargetAnswer) -> Iterator[Answer]:
        yield answer_of(spec, served.version, inference, answer.table())

    _, (found,) = await services.target_selecting.select(served, groups, floor, None, encoded)
    return response_of(found)
