"""The commands that create, list, rotate and revoke API keys, directly in the database.

There is no HTTP call for this, so that no key can create another one.
"""

import getpass
import json
from datetime import datetime
from typing import Annotated, Any

import typer

from service.auth.keys import ApiKey, KeyChange, NewSecret, RateLimit, Scope, new_key_id
from service.auth.tenants import TenantScope, is_tenant
from service.cli.options import DataDir, Duration, commands, duration, fail

MAX_LABEL = 255

key_app = commands("API keys: who may ask for what.")


@key_app.command("create")
def create_key(
    scope: Annotated[list[Scope], typer.Option(help="what it allows; may be repeated")],
    label: Annotated[str, typer.Option(help="a description")] = "",
    tenant: Annotated[str, typer.Option(help="its tenant; default: the unnamed tenant")] = "",
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="restricts it to this experiment; may be repeated"),
    ] = None,
    expires_in: Annotated[str | None, typer.Option(metavar="90d", help="default: never")] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0, help="in each process; 0: no limit")
    ] = None,
    burst: Annotated[int | None, typer.Option(min=1, help="requests at once")] = None,
    data_dir: DataDir = None,
) -> None:
    """Create a key and print it once; only its hash is stored."""
    from service.cli.database import with_keys
    from service.cli.local import settings_from
    from service.records import utc_now

    settings = settings_from(data_dir=data_dir)
    given = (requests_per_second, settings.key_requests_per_second)
    rate = next(each for each in given if each is not None)
    key = ApiKey(
        key_id=new_key_id(),
        label=_checked(label, len(label) <= MAX_LABEL, "--label is too long"),
        tenant_scope=_tenant_scope(tenant, experiment),
        scopes=frozenset(scope),
        rate_limit=RateLimit(rate, burst or settings.key_burst),
        expires_at=None if expires_in is None else utc_now() + duration(expires_in),
    )
    secret = NewSecret.for_key(key.key_id)
    with_keys(data_dir, lambda keys: keys.create(key, secret, _me()))
    _show_once(secret)


@key_app.command("list")
def list_keys(
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    data_dir: DataDir = None,
) -> None:
    """List all keys, without their secrets."""
    from service.cli.database import with_keys

    found = with_keys(data_dir, lambda keys: keys.list())
    _print([_shown(key) if as_json else _summary(key) for key in found], as_json)


@key_app.command("history")
def key_history(
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    data_dir: DataDir = None,
) -> None:
    """List the changes of keys: what, by whom and when."""
    from service.cli.database import with_keys

    changes = with_keys(data_dir, lambda keys: keys.changes())
    _print([_change(each) for each in changes], as_json)


@key_app.command("rotate")
def rotate_key(key_id: str, overlap: Duration = "24h", data_dir: DataDir = None) -> None:
    """Give a key a new secret and print it; the old one stays valid for the overlap."""
    from service.cli.database import with_keys

    secret, seconds = NewSecret.for_key(key_id), duration(overlap).total_seconds()
    with_keys(data_dir, lambda keys: keys.rotate(secret, seconds, _me()))
    _show_once(secret)


@key_app.command("revoke")
def revoke_key(key_id: str, data_dir: DataDir = None) -> None:
    """Revoke a key permanently; serving processes notice within DABAND_KEY_POLL_SECONDS."""
    from service.cli.database import with_keys

    with_keys(data_dir, lambda keys: keys.revoke(key_id, _me()))
    typer.echo(f"{key_id} is revoked")


def _me() -> str:
    return getpass.getuser()[:255]


def _show_once(secret: NewSecret) -> None:
    typer.echo("the key is shown only once; keep it safe", err=True)
    typer.echo(secret.shown())


def _tenant_scope(tenant: str, experiments: list[str] | None) -> TenantScope:
    from service.experiment_spec import is_name

    _checked(tenant, is_tenant(tenant), "--tenant has 1 to 64 letters, digits, ._-")
    for name in experiments or ():
        _checked(name, is_name(name), "--experiment is not a valid name")
    return TenantScope(tenant, frozenset(experiments) if experiments else None)


def _checked(value: str, is_right: bool, problem: str) -> str:
    if not is_right:
        fail(problem)
    return value


def _shown(key: ApiKey) -> dict[str, Any]:
    names = key.tenant_scope.names
    return {
        "key_id": key.key_id,
        "label": key.label,
        "tenant": key.tenant_scope.tenant,
        "experiments": None if names is None else sorted(names),
        "scopes": sorted(key.scopes),
        "requests_per_second": key.rate_limit.per_second,
        "burst": key.rate_limit.burst,
        "secrets": len(key.secrets),
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
    }


def _summary(key: ApiKey) -> dict[str, Any]:
    """The same for a terminal."""
    full, limit = _shown(key), key.rate_limit
    ends = [f"{word} {full[f'{word}_at']}" for word in ("revoked", "expires") if full[f"{word}_at"]]
    kept = ("key_id", "label", "tenant", "experiments", "scopes")
    return {
        **{name: full[name] for name in kept},
        "limit": f"{limit.per_second:g}/s" if limit.per_second else "none",
        "works": ends[0] if ends else "yes",
    }


def _change(change: KeyChange) -> dict[str, Any]:
    return {
        "at": _time(change.at),
        "key_id": change.key_id,
        "what": change.kind.value,
        "by": change.by,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold", no_wrap=name == "key_id")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value)
