"""The commands that talk to a running service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import httpx
import typer
from pydantic import ValidationError

from model.simulate import ClusterWorld
from service.client import DEFAULT_URL, Client, ProblemError, Retries

T = TypeVar("T")

# Somebody waits at a terminal: a service that is not there is told soon.
RETRIES = Retries(attempts=4)

experiment_app = typer.Typer(no_args_is_help=True, help="Experiments of a running service.")

Url = Annotated[str, typer.Option("--url", help="where the service runs")]


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
    _show(url, lambda client: client.create_experiment(**declared).model_dump(mode="json"))


@experiment_app.command("list")
def list_experiments(url: Url = DEFAULT_URL) -> None:
    """List the experiments."""
    _show(url, lambda client: [each.name for each in client.experiments()])


@experiment_app.command("show")
def show_experiment(name: str, url: Url = DEFAULT_URL) -> None:
    """Show an experiment and where it stands."""

    def look(client: Client) -> Any:
        found = client.experiment(name).model_dump(mode="json")
        return {**found, "state": client.state(name).model_dump(mode="json")}

    _show(url, look)


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="rounds to play")] = 1500,
    seed: Annotated[int, typer.Option(min=0, help="seed of world and learner")] = 1,
    method: Annotated[str, typer.Option(help="how to learn")] = "daband",
    plot: Annotated[Path, typer.Option(help="where the picture goes")] = Path(
        "build/serve-demo.png"
    ),
    url: Url = DEFAULT_URL,
) -> None:
    """Play a simulated two-domain experiment against a running service."""
    from service import demo as laboratory  # it draws, and no other command waits for that

    world = ClusterWorld(seed=seed)
    _with_client(url, lambda client: laboratory.run(client, world, method, rounds, plot))


def _show(url: str, look: Callable[[Client], Any]) -> None:
    typer.echo(json.dumps(_with_client(url, look), indent=2, ensure_ascii=False))


def _with_client(url: str, work: Callable[[Client], T]) -> T:
    try:
        with Client(url, RETRIES) as client:
            return work(client)
    except ProblemError as problem:
        fail(_explained(problem))
    except (ValidationError, httpx.InvalidURL) as error:
        fail(str(error))
    except httpx.TransportError:
        fail(f"there is no service at {url}; `daband serve` starts one")


def _explained(problem: ProblemError) -> str:
    places = (f"  {each['pointer']} {each['detail']}" for each in problem.problem.get("errors", []))
    return "\n".join((str(problem), *places))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        fail("--config is no JSON")


def fail(message: str) -> NoReturn:
    """End with a line that says why."""
    typer.echo(message, err=True)
    raise typer.Exit(2)
