"""The console's pages: templates whose values are all escaped, and the headers of every page."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from fastapi import Request, Response
from jinja2 import Environment

from service.auth.access import CONSOLE
from service.auth.keys import Caller
from service.auth.tenants import public_name
from service.console.static_files import address_of
from service.pages import rendering as pages
from service.records import Experiment
from service.reporting.figures import number, reward_text

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Forms have no Origin to check without a referrer; other sites still get none.
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


def page(request: Request, template: str, code: int = 200, /, **values: Any) -> Response:
    """A page as an answer."""
    caller: Caller | None = request.scope.get("caller")
    return html(template, code, caller=caller, path=request.url.path, **values)


def html(template: str, code: int = 200, /, **values: Any) -> Response:
    """A page or a part of one as an answer."""
    return answer(text_of(template, **values), code)


def text_of(template: str, /, **values: Any) -> str:
    """A page or a part of one."""
    return environment().get_template(template).render(**values)


def answer(text: str, code: int = 200) -> Response:
    """A rendered page or part as an answer."""
    return Response(text, code, headers=HEADERS, media_type="text/html")


def is_htmx(headers: Mapping[str, str]) -> bool:
    """Whether htmx asks for a part of a page."""
    return headers.get("hx-request") == "true"


def place_of(experiment: Experiment, done: str) -> str:
    """The page of an experiment after an act."""
    return f"{CONSOLE}/experiments/{public_name(experiment.name)}?done={done}"


@cache
def environment() -> Environment:
    """The templates of the console, with its filters."""
    found = pages.environment("service.console")
    found.globals |= {"static": address_of, "root": CONSOLE}
    found.filters |= {
        "number": number,
        "reward": reward_text,
        "count": lambda value: f"{value:,}",
        "percent": lambda value: "–" if value is None else f"{100 * value:.0f} %",
        "moment": moment,
        "ago": ago,
        "plain": lambda text: str(text).replace("_", " "),
    }
    return found


def moment(at: datetime) -> str:
    """A time for people, in UTC."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def ago(at: datetime) -> str:
    """How long ago a time was."""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"
