"""The table of routes and the app say the same: no route is forgotten, none is left over."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from service.app import create_app
from service.auth.access import ROUTES, Access, declared
from service.auth.keys import Caller, Scope
from service.auth.tenants import TenantScope
from service.settings import Settings

KEYLESS = {
    *("/healthz", "/readyz", "/problems/{slug}", "/openapi.json", "/", "/docs"),
    *("/docs/assets/{path:path}", "/console/static/{digest}/{name}"),
    *("/console/login", "/console/logout"),
    *("/v2", "/v2/health/live", "/v2/health/ready"),
}


def routes() -> list[tuple[str, str]]:
    """Every route of the app with its methods, those outside its description too."""
    return list(walked(create_app(Settings()).routes))


def walked(some: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for route in some:
        if isinstance(route, Mount):
            yield f"{route.path}/{{path:path}}", "GET"
        elif isinstance(route, APIRoute | Route):
            yield from ((route.path, each) for each in (route.methods or set()) - {"HEAD"})
        else:
            yield from walked(route.original_router.routes)


def test_every_route_declares_its_access():
    table = {(path, method) for path, methods in ROUTES.items() for method in methods}
    assert set(routes()) == table
    described = create_app(Settings()).openapi()["paths"]
    assert {(path, method.upper()) for path in described for method in described[path]} <= table


@pytest.mark.parametrize(("path", "method"), sorted(routes()))
def test_a_path_leads_to_its_own_entry(path: str, method: str):
    sample = re.sub(r"{[^}]*}", "Some-thing.1", path)
    assert declared(sample) is ROUTES[path]


def test_only_routes_without_tenant_data_are_open():
    is_open = {path for path, methods in ROUTES.items() if Access.OPEN in methods.values()}
    assert is_open == KEYLESS


@pytest.mark.parametrize(
    "path",
    [
        *("", "/select/", "/select\n", "//select", "/SELECT", "/experiments/a/b"),
        *("/experiments//state", "/experiments/{name}/snapshots/1", "/docs/asset"),
    ],
)
def test_what_is_not_in_the_table_is_no_route(path: str):
    assert declared(path) is None


@pytest.mark.parametrize("scope", Scope)
def test_a_scope_allows_only_its_routes(scope: Scope):
    caller = Caller(TenantScope("acme"), frozenset({scope}))
    allowed = {access for access in Access if access.allows(caller)}
    assert allowed == {Access.OPEN, Access.ANY_KEY, Access(scope)}


@pytest.mark.parametrize(
    ("tenant_scope", "scopes", "is_operator"),
    [
        (TenantScope(), {Scope.ADMIN}, True),
        (TenantScope(), {Scope.SELECT, Scope.REWARD, Scope.TARGET}, False),
        (TenantScope("acme"), set(Scope), False),
        (TenantScope("", frozenset({"doses"})), set(Scope), False),
    ],
)
def test_the_operator_is_an_admin_of_the_unnamed_tenant(
    tenant_scope: TenantScope, scopes: set[Scope], is_operator: bool
):
    assert Access.OPERATOR.allows(Caller(tenant_scope, frozenset(scopes))) is is_operator
