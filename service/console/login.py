"""Logging in and out: a key is exchanged for a session in a cookie."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from starlette.responses import RedirectResponse

from service.auth.access import CONSOLE, is_console
from service.auth.keys import digest
from service.auth.sessions import COOKIE, SESSION_SECONDS, Sessions
from service.console.rendering import page
from service.errors import KeyRefused, KeyRequired, RateLimited
from service.http.middleware import session_of
from service.routes import ServicesDep
from service.services import Services
from service.storage.keys import EndedSessions

LONGEST_KEY = 256

router = APIRouter(include_in_schema=False)


@router.get("/console/login")
async def login_page(request: Request, next: str = CONSOLE) -> Response:
    """The form; a service without keys has nobody to log in."""
    if _sessions(request) is None:
        return RedirectResponse(CONSOLE, 303)
    return page(request, "login.html", next=_inside(next), refusal=None)


@router.post("/console/login")
async def log_in(
    request: Request,
    key: Annotated[str, Form(max_length=LONGEST_KEY)],
    next: Annotated[str, Form(max_length=2048)] = CONSOLE,
) -> Response:
    """Exchange a key for a session."""
    sessions, place = _sessions(request), _inside(next)
    if sessions is None:
        return RedirectResponse(CONSOLE, 303)
    try:
        token = sessions.begin(key.strip())
    except (KeyRefused, RateLimited) as error:
        return page(request, "login.html", error.status, next=place, refusal=error.detail)
    answer = RedirectResponse(place, 303)
    is_secure = request.headers["origin"].startswith("https:")
    answer.set_cookie(
        COOKIE, token, SESSION_SECONDS, httponly=True, samesite="strict", secure=is_secure
    )
    return answer


@router.post("/console/logout")
async def log_out(request: Request, services: ServicesDep) -> Response:
    """End the session, for every copy of its token."""
    sessions = _sessions(request)
    if sessions is not None:
        with suppress(KeyRequired):  # there may be no session to end
            await _end(sessions, session_of(request.scope["headers"]), services)
    answer = RedirectResponse(f"{CONSOLE}/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


async def _end(sessions: Sessions, token: str, services: Services) -> None:
    ends_at = sessions.end_of(token)
    if ends_at is not None:  # otherwise anybody could fill the table
        await EndedSessions(services.database).add(digest(token), ends_at)


def _sessions(request: Request) -> Sessions | None:
    found: Sessions | None = request.app.state.sessions
    return found


def _inside(place: str) -> str:
    """The place if it is a page of the console, else its first page: a link must not lead elsewhere."""
    return place if is_console(place) and "\\" not in place and "//" not in place else CONSOLE
