"""Uses an installed service as a new user would: migrate, serve, demo, report, fit."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

BANNER = re.compile(r"daband serves on (http://\S+)")
START_SECONDS = 300.0
ROUNDS = "16"
ROWS = 150  # of each table
QUICK = '{"steps_per_episode": 2}'
# Where each of our packages was loaded from.
PLACES = (
    "import daband_client, migrations, model, service;"
    "print(*[each.__path__[0] for each in (daband_client, migrations, model, service)])"
)


def use(commands: Path, folder: Path, environment: Mapping[str, str], tables: Path) -> None:
    """Run every command in an empty folder; `tables` holds a source and a target."""

    def daband(*words: str) -> str:
        return _run([str(commands / "daband"), *words], folder, environment)

    _check_places(commands, folder, environment)
    print("migrate", daband("migrate", "--data-dir", "data").strip())
    with serving(commands, folder, environment) as url:
        daband("demo", "--url", url, "--rounds", ROUNDS, "--plot", "demo.png")
        (name,) = [each["name"] for each in _experiments(url)]
        print("demo   ", name)
        daband("report", name, "--url", url, "--out", "report.html")
    for table in ("mice.csv", "humans.csv"):
        lines = (tables / table).read_text().splitlines()
        (folder / table).write_text("\n".join(lines[:ROWS]))
    daband(
        *("fit", "--source", "mice.csv", "--target", "humans.csv", "--arm", "treatment"),
        *("--reward", "shrinkage", "--id", "patient_id", "--ignore", "mouse", "--config", QUICK),
    )
    for made in ("demo.png", "report.html", "arms.csv"):
        if not (folder / made).stat().st_size:
            sys.exit(f"{made} is empty.")
        print("wrote  ", made)


def _check_places(commands: Path, folder: Path, environment: Mapping[str, str]) -> None:
    loaded = _run([str(commands / "python"), "-c", PLACES], folder, environment).split()
    for place in loaded:
        if not Path(place).is_relative_to(commands.parent):
            sys.exit(f"{place} is not of the wheel.")


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


@contextmanager
def serving(commands: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A running service; its address."""
    output = folder / "serve.log"
    command = [str(commands / "daband"), "serve", "--port", "0", "--data-dir", "data"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        yield address(process, output, START_SECONDS)
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def address(process: "subprocess.Popen[bytes]", output: Path, seconds: float) -> str:
    """Where a service says that it serves; ends if it does not say so."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if found := BANNER.search(output.read_text()):
            return found[1]
        time.sleep(0.1)
    sys.exit(f"The service did not start.\n{output.read_text()}")


def _experiments(url: str) -> list[dict[str, str]]:
    with urlopen(f"{url}/experiments") as answer:  # noqa: S310 - an address of ours
        found: list[dict[str, str]] = json.load(answer)["experiments"]
    return found
