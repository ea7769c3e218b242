"""The routes, and the dependencies of their handlers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Query, Request, Response
from starlette.requests import ClientDisconnect

from service.auth.keys import Caller
from service.codec.bodies import MediaType, decode, media_type
from service.deciding.policies import Served
from service.errors import UnknownExperiment, UploadStalled
from service.experiment_spec import ExperimentSpec, is_name
from service.records import Experiment
from service.services import Services

T = TypeVar("T")

PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

MOST_DECODED_ON_LOOP = 1 << 18  # bytes of per-arm contexts

# Few threads: each may hold a decoded image of 64 MiB, and more would not be faster.
_IMAGE_THREADS = ThreadPoolExecutor(4, thread_name_prefix="images")


async def services_of(request: Request) -> Services:
    """The collaborators, from the server's lifespan."""
    found: Services = request.state.services
    return found


ServicesDep = Annotated[Services, Depends(services_of)]


async def caller_of(request: Request) -> Caller:
    """The caller that the middleware found."""
    found: Caller = request.scope["caller"]
    return found


CallerDep = Annotated[Caller, Depends(caller_of)]


async def full_name_of(name: str, caller: CallerDep) -> str:
    """The full name of the caller's experiment in the path; an invalid name is unknown."""
    if not is_name(name):
        raise UnknownExperiment
    return caller.tenant_scope.full_name(name)


FullNameDep = Annotated[str, Depends(full_name_of)]


async def experiment_of(name: str, services: ServicesDep, caller: CallerDep) -> Experiment:
    """The caller's experiment in the path."""
    return await services.experiments.get(await full_name_of(name, caller))


ExperimentDep = Annotated[Experiment, Depends(experiment_of)]


async def served_of(name: str, services: ServicesDep, caller: CallerDep) -> Served:
    """The same with the policy that answers its requests."""
    return await services.policies.current(await full_name_of(name, caller))


ServedDep = Annotated[Served, Depends(served_of)]

Limit = Annotated[int, Query(ge=1, le=1000)]  # of a list


def json_answer(body: Any, status: int = 200) -> Response:
    """A JSON answer, without validation of its shape."""
    return Response(msgspec.json.encode(body), status, media_type=MediaType.JSON)


def html_answer(page: str) -> Response:
    """An HTML page with inline styles and drawings; no scripts, no external resources."""
    return Response(page, headers={"Content-Security-Policy": PAGE_POLICY}, media_type="text/html")


async def beside_requests(spec: ExperimentSpec, work: Callable[[], T], body_bytes: int = 0) -> T:
    """What decodes contexts, in a thread if it is long: an image, or per-arm contexts, each for itself."""
    is_short = not spec.is_per_arm or body_bytes <= MOST_DECODED_ON_LOOP
    if spec.image is None and is_short:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_IMAGE_THREADS, work)


async def apart(spec: ExperimentSpec, work: Callable[[], T]) -> T:
    """What decodes contexts of an upload, in a thread: a piece of one can be large, whatever it holds."""
    if spec.image is None:
        return await asyncio.to_thread(work)
    return await beside_requests(spec, work)


async def received(request: Request, file: IO[bytes]) -> None:
    """Write the body of an upload to a file."""
    try:
        async for piece in request.stream():
            await asyncio.to_thread(file.write, piece)
    except (TimeoutError, ClientDisconnect):
        raise UploadStalled from None
    file.flush()


async def body_of(request: Request, kind: type[T]) -> T:
    """The request's body, decoded strictly from JSON or msgpack."""
    media = media_type(request.headers.get("content-type"))
    return decode(await request.body(), kind, media)
