"""All routes of the console, behind one check of where a form comes from."""

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.responses import RedirectResponse

from service.auth.access import CONSOLE
from service.auth.sessions import Sessions
from service.console import login, static_files
from service.console.pages import acts, evaluations, experiment, experiments, log, system, target
from service.errors import OriginRefused
from service.http.cors import is_foreign
from service.routes import json_answer

INDEX = {
    "service": "daband",
    "console": CONSOLE,
    "experiments": "/experiments",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "ready": "/readyz",
    "metrics": "/metrics",
}

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


def add_console(app: FastAPI, sessions: Sessions | None, facts: system.SystemFacts) -> None:
    """Add the console; without `sessions` it opens at once."""
    app.state.sessions = sessions
    app.state.system_facts = facts
    app.include_router(home)
    for each in (
        static_files,
        login,
        experiments,
        experiment,
        acts,
        target,
        log,
        evaluations,
        system,
    ):
        app.include_router(each.router, dependencies=[Depends(_from_own_pages)])
