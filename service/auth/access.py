"""The access rule of each route, in one table. A route that is not in it is refused."""

import re
from collections.abc import Mapping
from enum import StrEnum

from service.auth.keys import Caller, Scope
from service.errors import NotGranted


class Access(StrEnum):
    """Who may call a route: every caller, any key, a key with a scope, or the operator."""

    OPEN = "open"
    ANY_KEY = "any key"
    SELECT = "select"
    REWARD = "reward"
    TARGET = "target"
    ADMIN = "admin"
    OPERATOR = "operator"

    def allows(self, caller: Caller) -> bool:
        """Whether a caller with a valid key may call the route."""
        if self is Access.OPERATOR:
            return caller.is_operator
        return self in (Access.OPEN, Access.ANY_KEY) or Scope(self) in caller.scopes

    def check(self, caller: Caller) -> None:
        """Refuse a caller who may not call the route."""
        if not self.allows(caller):
            who = (
                "is not the operator's" if self is Access.OPERATOR else f"lacks the scope `{self}`"
            )
            raise NotGranted(f"The key does not allow this: it {who}.", scope=self.value)


Methods = Mapping[str, Access]
METRICS = "/metrics"
CONSOLE = "/console"  # its pages take a session instead of a key

ROUTES: Mapping[str, Methods] = {
    "/select": {"POST": Access.SELECT},
    "/select/batch": {"POST": Access.SELECT},
    "/reward": {"POST": Access.REWARD},
    "/reward/batch": {"POST": Access.REWARD},
    "/target/select": {"POST": Access.TARGET},
    "/target/contexts": {"POST": Access.TARGET},
    "/experiments": {"GET": Access.ANY_KEY, "POST": Access.ADMIN},
    "/experiments/{name}": {
        "GET": Access.ANY_KEY,
        "PATCH": Access.ADMIN,
        "DELETE": Access.ADMIN,
    },
    "/experiments/{name}/phase": {"POST": Access.ADMIN},
    "/experiments/{name}/train": {"POST": Access.ADMIN},
    "/experiments/{name}/history": {"POST": Access.ADMIN},
    "/experiments/{name}/state": {"GET": Access.ANY_KEY},
    "/experiments/{name}/log": {"GET": Access.ADMIN},
    "/experiments/{name}/log/export": {"GET": Access.ADMIN},
    "/experiments/{name}/decisions/{decision_id}": {"GET": Access.ADMIN},
    "/experiments/{name}/nearest": {"POST": Access.ADMIN},  # it shows contexts of the log
    "/experiments/{name}/learning": {"GET": Access.ANY_KEY},
    "/experiments/{name}/latents": {"GET": Access.ANY_KEY},
    "/experiments/{name}/transfer": {"GET": Access.ANY_KEY},
    "/experiments/{name}/report": {"GET": Access.ANY_KEY},
    "/experiments/{name}/audit": {"GET": Access.ADMIN},
    "/experiments/{name}/snapshots": {"GET": Access.ANY_KEY},
    "/experiments/{name}/snapshots/{version}/restore": {"POST": Access.ADMIN},
    "/experiments/{name}/snapshots/{version}/policy": {"GET": Access.TARGET},
    "/experiments/{name}/candidates": {"GET": Access.ADMIN},
    "/experiments/{name}/candidates/{episode}/promote": {"POST": Access.ADMIN},
    "/experiments/{name}/candidates/{episode}/policy": {"GET": Access.ADMIN},
    "/audit": {"GET": Access.ADMIN},
    "/evaluations": {"GET": Access.ADMIN, "POST": Access.ADMIN},
    "/evaluations/file": {"POST": Access.ADMIN},
    "/evaluations/{evaluation_id}": {"GET": Access.ADMIN},
    "/evaluations/{evaluation_id}/cancel": {"POST": Access.ADMIN},
    "/evaluations/{evaluation_id}/report": {"GET": Access.ADMIN},
    "/v2/models/{name}": {"GET": Access.ANY_KEY},
    "/v2/models/{name}/ready": {"GET": Access.ANY_KEY},
    "/v2/models/{name}/infer": {"POST": Access.TARGET},
    "/v2/models/{name}/versions/{version}": {"GET": Access.ANY_KEY},
    "/v2/models/{name}/versions/{version}/ready": {"GET": Access.ANY_KEY},
    "/v2/models/{name}/versions/{version}/infer": {"POST": Access.TARGET},
    # The handler checks the scope of the flag's domain: `select`, or `target`.
    "/ofrep/v1/evaluate/flags/{key}": {"POST": Access.ANY_KEY},
    "/ofrep/v1/evaluate/flags": {"POST": Access.TARGET},
    "/v2": {"GET": Access.OPEN},
    "/v2/health/live": {"GET": Access.OPEN},
    "/v2/health/ready": {"GET": Access.OPEN},
    "/healthz": {"GET": Access.OPEN},
    "/readyz": {"GET": Access.OPEN},
    METRICS: {"GET": Access.OPERATOR},
    "/problems/{slug}": {"GET": Access.OPEN},
    # These contain no tenant's data, and a browser cannot send a key.
    "/openapi.json": {"GET": Access.OPEN},
    "/": {"GET": Access.OPEN},
    "/docs": {"GET": Access.OPEN},
    "/docs/assets/{path:path}": {"GET": Access.OPEN},
    "/console/static/{digest}/{name}": {"GET": Access.OPEN},
    "/console/login": {"GET": Access.OPEN, "POST": Access.OPEN},
    "/console/logout": {"POST": Access.OPEN},
    "/console": {"GET": Access.ANY_KEY},
    "/console/system": {"GET": Access.ANY_KEY},
    "/console/create": {"GET": Access.ADMIN, "POST": Access.ADMIN},
    "/console/create/tables": {"GET": Access.ADMIN, "POST": Access.ADMIN},
    "/console/importing": {"GET": Access.ADMIN},
    "/console/experiments/{name}": {"GET": Access.ANY_KEY},
    "/console/experiments/{name}/live": {"GET": Access.ANY_KEY},
    "/console/experiments/{name}/latents": {"GET": Access.ANY_KEY},
    "/console/experiments/{name}/report": {"GET": Access.ANY_KEY},
    "/console/experiments/{name}/target": {"GET": Access.TARGET, "POST": Access.TARGET},
    "/console/experiments/{name}/log": {"GET": Access.ADMIN},
    "/console/experiments/{name}/log/export": {"GET": Access.ADMIN},
    "/console/experiments/{name}/log/{decision_id}": {"GET": Access.ADMIN},
    "/console/experiments/{name}/evaluations": {"GET": Access.ADMIN, "POST": Access.ADMIN},
    "/console/experiments/{name}/evaluations/file": {"POST": Access.ADMIN},
    "/console/experiments/{name}/evaluations/{evaluation_id}": {"GET": Access.ADMIN},
    "/console/experiments/{name}/evaluations/{evaluation_id}/live": {"GET": Access.ADMIN},
    "/console/experiments/{name}/evaluations/{evaluation_id}/report": {"GET": Access.ADMIN},
    "/console/experiments/{name}/evaluations/{evaluation_id}/cancel": {"POST": Access.ADMIN},
    "/console/experiments/{name}/history": {"GET": Access.ADMIN, "POST": Access.ADMIN},
    "/console/experiments/{name}/act": {"POST": Access.ADMIN},
}


def is_console(path: str) -> bool:
    """Whether this is a path of the console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def declared(path: str) -> Methods | None:
    """The access rules of a path by method; None if there is no such route."""
    found = ROUTES.get(path)
    if found is not None and "{" not in path:
        return found
    return next((methods for pattern, methods in _PATTERNS if pattern.fullmatch(path)), None)


def _pattern(template: str) -> re.Pattern[str]:
    pieces = re.split(r"({\w+(?::path)?})", template)
    return re.compile("".join(_piece(each) for each in pieces))


def _piece(text: str) -> str:
    if not text.startswith("{"):
        return re.escape(text)
    return r"[\s\S]*" if text.endswith(":path}") else "[^/]+"


_PATTERNS = [(_pattern(path), methods) for path, methods in ROUTES.items() if "{" in path]
