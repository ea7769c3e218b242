"""The commands that talk to a running service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

import httpx
import msgspec
import numpy as np
import typer
from pydantic import BaseModel, ValidationError

from model import ClusterWorld, SnapshotError, manifest_of, open_exported
from service.client import DEFAULT_URL, Client, ProblemError, Retries
from service.codec.requests import Status
from service.errors import InvalidRequest

T = TypeVar("T")

RETRIES = Retries(attempts=4)  # few, because a person waits
KEY_VARIABLE = "DABAND_API_KEY"

experiment_app = typer.Typer(no_args_is_help=True, help="Experiments of a running service.")

Url = Annotated[str, typer.Option("--url", help="the service's URL")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar=KEY_VARIABLE, help="an API key, if the service requires one"),
]


class Service(NamedTuple):
    """The URL and API key of a running service."""

    url: str
    api_key: str | None


@experiment_app.command("create")
def create_experiment(
    name: str,
    arm: Annotated[list[str], typer.Option(help="an arm; may be repeated")],
    shape: Annotated[
        list[int], typer.Option(help="a size of the context's shape; may be repeated")
    ],
    kind: Annotated[str, typer.Option(help="shared or per_arm")] = "shared",
    method: str = "daband",
    seed: int = 0,
    config: Annotated[str, typer.Option(help="changes of the method's values, as JSON")] = "{}",
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
    _show(Service(url, api_key), lambda client: client.create_experiment(**declared))


@experiment_app.command("list")
def list_experiments(url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """List the experiments."""
    _show(Service(url, api_key), lambda client: [each.name for each in client.experiments()])


@experiment_app.command("show")
def show_experiment(name: str, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Show an experiment and its state."""

    def look(client: Client) -> Any:
        return {**client.experiment(name).model_dump(mode="json"), "state": client.state(name)}

    _show(Service(url, api_key), look)


By = Annotated[str | None, typer.Option(help="the author, for the audit trail")]
Reason = Annotated[str | None, typer.Option(help="the reason, for the audit trail")]


def _status_command(status: Status, help_text: str) -> Callable[..., None]:
    def change_status(
        name: str,
        by: By = None,
        reason: Reason = None,
        url: Url = DEFAULT_URL,
        api_key: ApiKey = None,
    ) -> None:
        _show(Service(url, api_key), lambda client: client.set_status(name, status, by, reason))

    change_status.__doc__ = help_text
    return change_status


experiment_app.command("pause")(
    _status_command("paused", "Accept no more decisions; rewards are still accepted.")
)
experiment_app.command("archive")(
    _status_command("archived", "Accept nothing new; the experiment can be read and exported.")
)
experiment_app.command("resume")(
    _status_command("active", "Accept decisions and rewards again, after a pause or an archiving.")
)


@experiment_app.command("delete")
def delete_experiment(
    name: str,
    confirm: Annotated[
        str | None, typer.Option(help="the name again; prompted for if left out")
    ] = None,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Delete an experiment with all its data; this cannot be undone."""
    if confirm is None:
        confirm = typer.prompt(f"This permanently erases {name} with its log. Type its name")
    if confirm != name:
        fail("the name does not match: nothing was deleted")
    _show(Service(url, api_key), lambda client: client.delete_experiment(name, by, reason))


@experiment_app.command("history")
def show_acts(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List administrative acts on experiments, including deleted ones, the newest first."""
    _show(Service(url, api_key), lambda client: client.acts(limit))


@experiment_app.command("open")
def open_target(
    name: str,
    best_reward: Annotated[float, typer.Option(help="the reference of target regret")] = 1.0,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Accept target rewards from now on; this cannot be undone."""
    _show(Service(url, api_key), lambda client: client.open_target(name, best_reward))


@experiment_app.command("promote")
def promote_candidate(
    name: str,
    episode: int,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Serve an encoder that the gate refused or that waits for promotion."""
    _show(Service(url, api_key), lambda client: client.promote(name, episode, by, reason))


@experiment_app.command("restore")
def restore_version(
    name: str,
    version: int,
    by: By = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Roll back to the encoder of an earlier version; no reward is lost."""
    _show(Service(url, api_key), lambda client: client.restore(name, version, by, reason))


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
        str | None, typer.Option(help="makes a retry safe; default: the file's name")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Store the unlabeled target contexts of a file in a running service, all or none."""
    array = _loaded(contexts)
    name = request_id or contexts.name
    _show(Service(url, api_key), lambda client: client.upload_contexts(experiment, array, name))


def report(
    experiment: str,
    out: Annotated[Path | None, typer.Option(help="the HTML file to write")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the transfer report of an experiment as one self-contained HTML file."""
    path = out or Path(f"{experiment}-transfer.html")
    page = _with_client(Service(url, api_key), lambda client: client.report(experiment))
    _write(path, page.encode())


def export(
    experiment: str,
    version: Annotated[int | None, typer.Option(help="default: the newest")] = None,
    out: Annotated[Path | None, typer.Option(help="the safetensors file to write")] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the target policy of a version as a safetensors file, and its manifest as JSON."""

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
    out: Annotated[Path | None, typer.Option(help="JSON lines; default: standard output")] = None,
) -> None:
    """Score target contexts with a policy file, without a service, as `/target/select` does."""
    from service.cli.score import scored  # slow to load, and no other command needs it

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
    method: Annotated[str, typer.Option(help="the method")] = "daband",
    plot: Annotated[Path, typer.Option(help="the image file to write")] = Path(
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
    found = _with_client(service, look)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, default=_plain))


def _plain(answer: BaseModel) -> Any:
    return answer.model_dump(mode="json")


def _with_client(service: Service, work: Callable[[Client], T]) -> T:
    try:
        with Client(service.url, RETRIES, api_key=service.api_key) as client:
            return work(client)
    except ProblemError as problem:
        fail(_explained(problem))
    except (ValidationError, httpx.InvalidURL) as error:
        fail(str(error))
    except httpx.TransportError:
        fail(f"no service answers at {service.url}; `daband serve` starts one")


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
        fail("--config must be JSON")


def fail(message: str) -> NoReturn:
    """End the command with an error message."""
    typer.echo(message, err=True)
    raise typer.Exit(2)
