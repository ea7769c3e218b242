"""The commands that talk to a running service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

import httpx
import msgspec
import numpy as np
import typer
from pydantic import ValidationError

from model import ClusterWorld, SnapshotError, manifest_of, open_exported
from service.client import DEFAULT_URL, Client, ProblemError, Retries
from service.codec.requests import Status
from service.errors import InvalidRequest

T = TypeVar("T")

# Somebody waits at a terminal: a service that is not there is told soon.
RETRIES = Retries(attempts=4)
KEY_VARIABLE = "DABAND_API_KEY"

experiment_app = typer.Typer(no_args_is_help=True, help="Experiments of a running service.")

Url = Annotated[str, typer.Option("--url", help="where the service runs")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar=KEY_VARIABLE, help="needed by a service that asks for one"),
]


class Service(NamedTuple):
    """Where a running service is, and what it lets us in with."""

    url: str
    api_key: str | None


@experiment_app.command("create")
def create_experiment(
    name: str,
    arm: Annotated[list[str], typer.Option(help="one of the arms; give it once for each")],
    shape: Annotated[list[int], typer.Option(help="a size of the context's shape, in order")],
    kind: Annotated[str, typer.Option(help="shared or per_arm")] = "shared",
    method: str = "daband",
    seed: int = 0,
    config: Annotated[str, typer.Option(help="what differs from the method, as JSON")] = "{}",
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Create an experiment."""
    declared = {
        "name": name,
        "arms": arm,
        "context": {"kind": kind, "shape": shape},
        "method": method,
        "seed": seed,
        "config": _json(config),
    }
    _show(
        Service(url, api_key),
        lambda client: client.create_experiment(**declared).model_dump(mode="json"),
    )


@experiment_app.command("list")
def list_experiments(url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """List the experiments."""
    _show(Service(url, api_key), lambda client: [each.name for each in client.experiments()])


@experiment_app.command("show")
def show_experiment(name: str, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show an experiment and where it stands."""

    def look(client: Client) -> Any:
        found = client.experiment(name).model_dump(mode="json")
        return {**found, "state": client.state(name).model_dump(mode="json")}

    _show(Service(url, api_key), look)


By = Annotated[str | None, typer.Option(help="who does it, for the audit trail")]
Reason = Annotated[str | None, typer.Option(help="why, for the audit trail")]


def _set_status(
    service: Service, name: str, status: Status, by: str | None, reason: str | None
) -> None:
    _show(
        service,
        lambda client: client.set_status(name, status, by, reason).model_dump(mode="json"),
    )


@experiment_app.command("pause")
def pause_experiment(
    name: str,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Take no more decisions; rewards are still taken."""
    _set_status(Service(url, api_key), name, "paused", by, reason)


@experiment_app.command("archive")
def archive_experiment(
    name: str,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Take nothing new; the experiment can be read and exported."""
    _set_status(Service(url, api_key), name, "archived", by, reason)


@experiment_app.command("resume")
def resume_experiment(
    name: str,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Take decisions and rewards again, after a pause or out of the archive."""
    _set_status(Service(url, api_key), name, "active", by, reason)


@experiment_app.command("delete")
def delete_experiment(
    name: str,
    confirm: Annotated[
        str | None, typer.Option(help="the name once more; asked for when left out")
    ] = None,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Delete an experiment with all its data; there is no way back."""
    if confirm is None:
        confirm = typer.prompt(f"This erases {name} with its log for good. Type its name")
    if confirm != name:
        fail("that is not its name: nothing was deleted")
    _show(
        Service(url, api_key),
        lambda client: client.delete_experiment(name, by, reason).model_dump(mode="json"),
    )


@experiment_app.command("history")
def show_acts(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """What was done to experiments, deleted ones included, the newest first."""
    _show(
        Service(url, api_key),
        lambda client: [each.model_dump(mode="json") for each in client.acts(limit)],
    )


@experiment_app.command("open")
def open_target(
    name: str,
    best_reward: Annotated[float, typer.Option(help="what target regret is counted against")] = 1.0,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Open the target for rewards; there is no way back."""
    _show(
        Service(url, api_key),
        lambda client: client.open_target(name, best_reward).model_dump(mode="json"),
    )


@experiment_app.command("promote")
def promote_candidate(
    name: str,
    episode: int,
    by: Annotated[str | None, typer.Option(help="who promotes it")] = None,
    reason: Annotated[str | None, typer.Option(help="why")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Serve an encoder that the gate refused or that waits for a person."""
    _show(
        Service(url, api_key),
        lambda client: client.promote(name, episode, by, reason).model_dump(mode="json"),
    )


@experiment_app.command("restore")
def restore_version(
    name: str,
    version: int,
    by: Annotated[str | None, typer.Option(help="who restores it")] = None,
    reason: Annotated[str | None, typer.Option(help="why")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Go back to the encoder of an earlier version; no reward is lost."""
    _show(
        Service(url, api_key),
        lambda client: client.restore(name, version, by, reason).model_dump(mode="json"),
    )


def train_now(
    experiment: str,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Update an experiment's encoder with all rewards and target contexts that have come."""
    _show(
        Service(url, api_key),
        lambda client: client.train(experiment, by, reason).model_dump(mode="json"),
    )


def upload(
    experiment: str,
    contexts: Annotated[Path, typer.Argument(help="an npy file of target contexts")],
    request_id: Annotated[
        str | None, typer.Option(help="makes it safe to run again; the file's name when left out")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Store unlabeled target contexts of a file in a running service, all or none."""
    array = _loaded(contexts)
    name = request_id or contexts.name
    _show(
        Service(url, api_key),
        lambda client: client.upload_contexts(experiment, array, name).model_dump(),
    )


def report(
    experiment: str,
    out: Annotated[Path | None, typer.Option(help="the HTML file to write")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the transfer report of an experiment as one HTML file that needs nothing else."""
    path = out or Path(f"{experiment}-transfer.html")
    page = _with_client(Service(url, api_key), lambda client: client.report(experiment))
    _write(path, page.encode())


def export(
    experiment: str,
    version: Annotated[int | None, typer.Option(help="the newest when left out")] = None,
    out: Annotated[Path | None, typer.Option(help="the safetensors file to write")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the target policy of a version as a safetensors file, its manifest beside it as JSON."""

    def fetch(client: Client) -> tuple[int, bytes]:
        chosen = client.state(experiment).policy_version if version is None else version
        return chosen, client.policy(experiment, chosen)

    chosen, content = _with_client(Service(url, api_key), fetch)
    path = out or Path(f"{experiment}-{chosen}.safetensors")
    _write(path, content)
    manifest = json.dumps(manifest_of(content), indent=2, ensure_ascii=False)
    _write(path.with_suffix(".json"), manifest.encode())


def score(
    policy: Annotated[Path, typer.Option(help="a file of `daband export`")],
    contexts: Annotated[Path, typer.Option(help="target contexts: npy, or JSON lines")],
    confidence_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="abstain below this confidence")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON lines; standard output if left out")
    ] = None,
) -> None:
    """Score target contexts with a policy file, without any service, as `/target/select` does."""
    from service.cli.score import scored  # no other command needs it

    try:
        found = open_exported(policy.read_bytes())
        lines = (
            msgspec.json.encode(each) + b"\n" for each in scored(found, contexts, confidence_floor)
        )
        if out is None:
            for line in lines:
                typer.echo(line, nl=False)
        else:
            with out.open("wb") as stream:
                stream.writelines(lines)
    except (SnapshotError, OSError, ValueError) as error:
        fail(str(error))
    except InvalidRequest as refusal:
        fail("; ".join(f"{each['pointer']} {each['detail']}" for each in refusal.members["errors"]))


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="rounds to play")] = 1500,
    seed: Annotated[int, typer.Option(min=0, help="seed of world and learner")] = 1,
    method: Annotated[str, typer.Option(help="how to learn")] = "daband",
    plot: Annotated[Path, typer.Option(help="where the picture goes")] = Path(
        "build/serve-demo.png"
    ),
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Play a simulated two-domain experiment against a running service."""
    from service.cli import demo as laboratory

    world = ClusterWorld(seed=seed)
    _with_client(
        Service(url, api_key), lambda client: laboratory.run(client, world, method, rounds, plot)
    )


def _show(service: Service, look: Callable[[Client], Any]) -> None:
    typer.echo(json.dumps(_with_client(service, look), indent=2, ensure_ascii=False))


def _with_client(service: Service, work: Callable[[Client], T]) -> T:
    try:
        with Client(service.url, RETRIES, api_key=service.api_key) as client:
            return work(client)
    except ProblemError as problem:
        fail(_explained(problem))
    except (ValidationError, httpx.InvalidURL) as error:
        fail(str(error))
    except httpx.TransportError:
        fail(f"there is no service at {service.url}; `daband serve` starts one")


def _explained(problem: ProblemError) -> str:
    places = (f"  {each['pointer']} {each['detail']}" for each in problem.problem.get("errors", []))
    return "\n".join((str(problem), *places))


def _loaded(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    typer.echo(f"{path}: {len(content):,} bytes")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        fail("--config is no JSON")


def fail(message: str) -> NoReturn:
    """End with a line that says why."""
    typer.echo(message, err=True)
    raise typer.Exit(2)
