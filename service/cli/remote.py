"""The commands that ask a running service; they work wherever the client does."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer

from service import DEFAULT_METHOD
from service.cli.options import (
    By,
    Categorical,
    Ignore,
    Key,
    Orthologs,
    Reason,
    Resize,
    Url,
    cell_options,
    commands,
    fail,
    file_errors,
    json_object,
)

if TYPE_CHECKING:
    from daband_client import Client
    from service.formats.cells.genes import CellOptions

T = TypeVar("T")

AT_ONCE = 50_000  # rows of a table that are encoded at once

SHIFT = (
    0.5  # of the demo's world: what is learned on the source alone loses, alignment wins it back
)

experiment_app = commands("Experiments of a running service.")


class Service(NamedTuple):
    """The address and the key of a running service; None means the client's default."""

    url: str | None
    key: str | None

    def ask(self, work: "Callable[[Client], T]") -> T:
        """The result of `work`; a problem ends the command with a message."""
        from daband_client import Client, DabandError, Retries, UnreachableError

        try:
            # Fewer attempts than usual: a person waits at a terminal.
            with Client(self.url, Retries(attempts=4), api_key=self.key) as client:
                return work(client)
        except UnreachableError as error:
            fail(f"{error}; `daband serve` starts a service")
        except (DabandError, ValueError) as error:
            fail(str(error))

    def show(self, look: "Callable[[Client], Any]") -> None:
        """Print an answer as JSON."""
        from msgspec import to_builtins

        typer.echo(json.dumps(to_builtins(self.ask(look)), indent=2, ensure_ascii=False))


@experiment_app.command("create")
def create_experiment(
    name: str,
    arm: Annotated[list[str], typer.Option(help="an arm; may be repeated")],
    shape: Annotated[
        list[int] | None, typer.Option(help="a size of the context's shape; may be repeated")
    ] = None,
    columns: Annotated[
        Path | None, typer.Option(help="instead of a shape: a JSON file of a table's columns")
    ] = None,
    sample: Annotated[
        list[Path] | None,
        typer.Option(
            help="instead of a shape: a table to take columns and levels from, CSV, Parquet or JSON "
            "lines; repeat it for both domains"
        ),
    ] = None,
    ignore: Ignore = None,
    categorical: Categorical = None,
    kind: Annotated[str, typer.Option(help="shared, per_arm or image")] = "shared",
    resize: Resize = False,
    method: str = DEFAULT_METHOD,
    seed: int = 0,
    config: Annotated[str, typer.Option(help="changes of the method's values, as JSON")] = "{}",
    url: Url = None,
    key: Key = None,
) -> None:
    """Create an experiment; its contexts have a shape, or the columns of a table."""
    changes = json_object(config)
    if sum(map(bool, (shape, columns, sample))) != 1:
        fail("give one of --shape, --columns and --sample")
    if shape:
        context: dict[str, Any] = {"kind": kind, "shape": shape}
        context |= {"resize": True} if resize else {}
    elif columns:
        context = {"kind": "table", "columns": _columns(columns)}
    else:
        from service.columns.schema import TableError
        from service.formats.surveying import surveyed_context

        with file_errors(TableError, LookupError):
            context = surveyed_context(sample or (), ignore or (), categorical or ())
    Service(url, key).show(
        lambda client: client.create_experiment(
            name, arm, context, method=method, seed=seed, config=changes
        )
    )


@experiment_app.command("list")
def list_experiments(url: Url = None, key: Key = None) -> None:
    """List the experiments."""
    Service(url, key).show(lambda client: [each.name for each in client.experiments()])


@experiment_app.command("show")
def show_experiment(name: str, url: Url = None, key: Key = None) -> None:
    """Show an experiment and its state."""
    from msgspec import to_builtins

    def look(client: "Client") -> dict[str, Any]:
        state = to_builtins(client.state(name))
        noted = state.pop("noted")
        return {**to_builtins(client.experiment(name)), "state": {**state, **noted}}

    Service(url, key).show(look)


@experiment_app.command("config")
def show_configuration(name: str, url: Url = None, key: Key = None) -> None:
    """Show the configuration in force: every field, with what was declared and all defaults."""
    Service(url, key).show(lambda client: client.experiment(name).config)


@experiment_app.command("snapshots")
def list_snapshots(name: str, url: Url = None, key: Key = None) -> None:
    """List the snapshots that are kept, the newest first: what `restore` can go back to."""
    Service(url, key).show(lambda client: client.snapshots(name))


def _status_command(status: Literal["active", "paused", "archived"]) -> Callable[..., None]:
    def set_status(
        name: str, by: By = None, reason: Reason = None, url: Url = None, key: Key = None
    ) -> None:
        Service(url, key).show(lambda client: client.set_status(name, status, by, reason))

    return set_status


experiment_app.command("pause", help="Take no more decisions; rewards are still taken.")(
    _status_command("paused")
)
experiment_app.command(
    "archive", help="Take nothing new; the experiment can be read and exported."
)(_status_command("archived"))
experiment_app.command(
    "resume", help="Take decisions and rewards again, after a pause or out of the archive."
)(_status_command("active"))


@experiment_app.command("delete")
def delete_experiment(
    name: str,
    confirm: Annotated[
        str | None, typer.Option(help="the name again; prompted for if left out")
    ] = None,
    by: By = None,
    reason: Reason = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Delete an experiment with all its data; this cannot be undone."""
    if confirm is None:
        confirm = typer.prompt(f"This permanently erases {name} with its log. Type its name")
    if confirm != name:
        fail("that is not its name: nothing was deleted")
    Service(url, key).show(lambda client: client.delete_experiment(name, by, reason))


@experiment_app.command("history")
def show_acts(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100, url: Url = None, key: Key = None
) -> None:
    """What was done to experiments, deleted ones included, the newest first."""
    Service(url, key).show(lambda client: client.acts(limit))


@experiment_app.command("open")
def open_target(
    name: str,
    best_reward: Annotated[float, typer.Option(help="the reference of target regret")] = 1.0,
    url: Url = None,
    key: Key = None,
) -> None:
    """Open the target for rewards; there is no way back."""
    Service(url, key).show(lambda client: client.open_target(name, best_reward))


@experiment_app.command("promote")
def promote_candidate(
    name: str,
    episode: int,
    by: By = None,
    reason: Reason = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Serve an encoder that the gate refused or that waits for a person."""
    Service(url, key).show(lambda client: client.promote(name, episode, by, reason))


@experiment_app.command("restore")
def restore_version(
    name: str,
    version: int,
    by: By = None,
    reason: Reason = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Go back to the encoder of an earlier version; no reward is lost."""
    Service(url, key).show(lambda client: client.restore(name, version, by, reason))


def train_now(
    experiment: str,
    by: By = None,
    reason: Reason = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Update an experiment's encoder with all rewards and target contexts that have come."""
    Service(url, key).show(lambda client: client.train(experiment, by, reason))


def upload(
    experiment: str,
    contexts: Annotated[
        Path,
        typer.Argument(
            help="target contexts: npy, a table as CSV, Parquet, JSON lines or .h5ad, a folder or zip of "
            "images"
        ),
    ],
    request_id: Annotated[
        str | None, typer.Option(help="makes a retry safe; default: the file's name")
    ] = None,
    ignore: Ignore = None,
    orthologs: Orthologs = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Store unlabeled target contexts of a file in a running service.

    Up to 10^6 contexts and 256 MiB are stored all or none; more are sent in such parts.
    """
    name = request_id or contexts.name
    cells = cell_options(None, False, orthologs, [contexts])

    def send(client: "Client") -> Any:
        rows = _rows(client, experiment, contexts, ignore or (), cells)
        return client.upload_contexts(experiment, rows, name)

    Service(url, key).show(send)


def report(
    experiment: str,
    out: Annotated[Path | None, typer.Option(help="the HTML file to write")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Write the transfer report of an experiment as one self-contained HTML file."""
    page = Service(url, key).ask(lambda client: client.report(experiment))
    _write(out or Path(f"{experiment}-transfer.html"), page.encode())


def export(
    experiment: str,
    version: Annotated[int | None, typer.Option(help="default: the newest")] = None,
    out: Annotated[Path | None, typer.Option(help="the safetensors file to write")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Write the target policy of a version as a safetensors file, and its manifest as JSON."""

    def fetch(client: "Client") -> tuple[int, bytes]:
        chosen = client.state(experiment).policy_version if version is None else version
        return chosen, client.policy(experiment, chosen)

    chosen, content = Service(url, key).ask(fetch)
    from model import manifest_of

    path = out or Path(f"{experiment}-{chosen}.safetensors")
    _write(path, content)
    manifest = json.dumps(manifest_of(content), indent=2, ensure_ascii=False)
    _write(path.with_suffix(".json"), manifest.encode())


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="rounds to play")] = 768,
    seed: Annotated[int, typer.Option(min=0, help="seed of world and learner")] = 1,
    method: Annotated[str, typer.Option(help="the method")] = DEFAULT_METHOD,
    plot: Annotated[Path, typer.Option(help="the image file to write")] = Path(
        "build/serve-demo.png"
    ),
    url: Url = None,
    key: Key = None,
) -> None:
    """Play a simulated two-domain experiment against a running service.

    It ends with what the target policy earns on new contexts, beside baselines.
    """
    from model import ClusterWorld
    from service.cli.demo import run as play

    world = ClusterWorld(seed=seed, shift=SHIFT)
    Service(url, key).ask(lambda client: play(client, world, method, rounds, plot))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    typer.echo(f"{path}: {len(content):,} bytes")


def _columns(path: Path) -> Any:
    """The columns of a file: a list, or the `context` of an experiment."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except ValueError:
        fail(f"{path}: not JSON")
    return found.get("columns") if isinstance(found, dict) else found


def _rows(
    client: "Client", experiment: str, path: Path, ignore: Sequence[str], cells: "CellOptions"
) -> Any:
    """What the client takes: an array, or the path of images.

    Rows of a table are encoded by the experiment's columns.
    """
    import numpy as np
    from numpy.lib.format import open_memmap

    if path.suffix == ".npy":
        try:
            return open_memmap(path, mode="r")
        except (OSError, ValueError) as error:
            fail(f"{path}: {error}")
    from service.columns.schema import TableError, TableSchema
    from service.formats.cells.tables import opened_table
    from service.images.files import is_images

    if is_images(path):
        return path
    columns = client.experiment(experiment).context.columns
    if columns is None:
        fail(f"{path}: the contexts of {experiment} have no columns; give an npy file")
    table = TableSchema.from_plain(columns)

    with (
        file_errors(TableError, LookupError),
        opened_table(path, (), table, cells) as file,
    ):
        encoded = [rows for _, rows in file.encoded(table, AT_ONCE, (), ignore)]
    if not encoded:
        fail(f"{path}: there are no rows")
    return np.concatenate(encoded)
