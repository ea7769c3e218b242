"""All routes of the console, behind one check of where a form comes from."""

from functools import cache

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute

from service.auth.access import CONSOLE
from service.auth.keys import digest
from service.auth.sessions import Sessions
from service.console import login, static_files
from service.console.live_parts import LiveParts
from service.console.pages import (
    acts,
    create,
    evaluations,
    experiment,
    experiments,
    history,
    log,
    system,
    tables,
    target,
)
from service.errors import KeyRefused, OriginRefused
from service.http.cors import is_foreign
from service.http.middleware import session_of
from service.routes import ServicesDep, json_answer
from service.storage.keys import EndedSessions

INDEX = {
    "service": "daband",
    "console": CONSOLE,
    "experiments": "/experiments",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "ready": "/readyz",
    "metrics": "/metrics",
}

PAGES = (
    experiments,
    create,
    tables,
    experiment,
    acts,
    target,
    log,
    evaluations,
    history,
    system,
)

home = APIRouter(include_in_schema=False)


@home.get("/")
async def start(request: Request) -> Response:
    """The console; for programs, where things are."""
    accepted = request.headers.get("accept", "")
    if "application/json" in accepted and "text/html" not in accepted:
        return json_answer(INDEX)
    return RedirectResponse(CONSOLE, 307)


async def _from_own_pages(request: Request) -> None:
    """Refuse what a page of another origin sends; browsers name the origin of every POST."""
    if request.method == "POST" and is_foreign(dict(request.scope["headers"])):
        raise OriginRefused


async def _in_open_session(request: Request, services: ServicesDep) -> None:
    """Refuse a session that was ended by logging out, in this process or another."""
    if request.app.state.sessions is None:
        return
    token = session_of(request.scope["headers"])
    if await EndedSessions(services.database).has(digest(token)):
        raise KeyRefused


@cache
def console_routes() -> list[BaseRoute]:
    """The routes of the console; FastAPI prepares them with the first request, once for all apps."""
    console = APIRouter()
    console.include_router(home)
    own = Depends(_from_own_pages)
    for each in (static_files, login):
        console.include_router(each.router, dependencies=[own])
    for each in PAGES:
        console.include_router(each.router, dependencies=[own, Depends(_in_open_session)])
    return console.routes


def open_console(app: FastAPI, sessions: Sessions | None, facts: system.SystemFacts) -> None:
    """Give the console what it works with; without `sessions` it opens at once."""
    app.state.sessions = sessions
    app.state.system_facts = facts
    app.state.live_parts = LiveParts()
