"""The routes, and how their handlers get at what they work with."""

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request, Response

from service.bodies import MediaType, decode, media_type
from service.errors import UnknownExperiment
from service.experiment_spec import is_name
from service.services import Services

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


async def services_of(request: Request) -> Services:
    """The collaborators, from the server's lifespan."""
    found: Services = request.state.services
    return found


ServicesDep = Annotated[Services, Depends(services_of)]


async def named(name: str) -> str:
    """An experiment's name from the path; what cannot be a name is unknown."""
    if not is_name(name):
        raise UnknownExperiment
    return name


NameDep = Annotated[str, Depends(named)]


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A body of ours, as JSON, without another look at its shape."""
    return Response(_encode(body), status, headers=headers, media_type=MediaType.JSON)


async def body_of(request: Request, kind: type[T]) -> T:
    """The request's body, decoded strictly from JSON or msgpack."""
    media = media_type(request.headers.get("content-type"))
    return decode(await request.body(), kind, media)
