"""`make fresh`: `make serve`, a select and `make test` on a bare Debian, in a container; prints their times.

    python -m release.fresh [--only-serve] [--tests ARGS] [--base IMAGE] [--suite NAME] [--mirror URL]

The container holds Python, make, git and a clean clone of the last commit. It gets this machine's
configuration of pip, with the folders and files that it names. Without `--base` the image is made of Debian's
packages and removed at the end. Needs root, podman and, without `--base`, debootstrap.
"""

import argparse
import ast
import configparser
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from release.smoke import address

ROOT = Path(__file__).parents[1]
PACKAGES = "ca-certificates,git,make,python3,python3-venv"
CHECKOUT = "/srv/daband"
INSTALL_SECONDS = 3600.0  # exceeded only by a hang
# A shell collects orphans that end, as init does.
IDLE = ("sh", "-c", "while sleep 60; do :; done")
EXPERIMENT = {
    "name": "fresh",
    "arms": ["low", "high"],
    "context": {"kind": "shared", "shape": [2]},
    "seed": 7,
}
ROUND = {"experiment": "fresh", "request_id": "r-1", "source": {"context": [0.1, 0.2]}}


def main() -> None:
    """Make the machine, use it and remove it; the exit code is that of `make test`."""
    given = parsed()
    check_needs(is_building=given.base is None)
    with tempfile.TemporaryDirectory(prefix="daband-fresh-") as made:
        folder = Path(made)
        with base_image(folder, given) as image, container(folder, image) as name:
            print(run("podman", "exec", name, "python3", "-VV").strip(), flush=True)
            serve(folder, name)
            failed = 0 if given.only_serve else test(name, given.tests)
    sys.exit(failed)


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-serve", action="store_true", help="leave out `make test`")
    parser.add_argument("--tests", default="", help="ARGS of `make test`; default: all tests")
    parser.add_argument("--base", help="an image with python3, its venv, make and git")
    parser.add_argument("--suite", default="bookworm", help="Debian's release")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="of Debian")
    return parser.parse_args()


def check_needs(*, is_building: bool) -> None:
    """End with what is missing on this machine."""
    programs = ["git", "podman", *(["debootstrap"] if is_building else [])]
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0:
        missing.insert(0, "root")
    if missing:
        sys.exit(f"make fresh needs root, {', '.join(programs)}; missing: {', '.join(missing)}")


def serve(folder: Path, name: str) -> None:
    """Run `make serve` until it is ready and has answered a select."""
    output = folder / "serve.log"
    with output.open("wb") as file:
        command = inside(name, "make serve ARGS='--port 0'")
        with timed("make serve, ready"):
            process = subprocess.Popen(command, stdout=file, stderr=file)
            url = address(process, output, INSTALL_SECONDS)
            called(f"{url}/readyz")
        called(f"{url}/experiments", EXPERIMENT)
        print("select ", called(f"{url}/select", ROUND)["source"]["arm"], flush=True)
        run("podman", "restart", "--time", "0", name)  # ends the service
        process.wait()


def test(name: str, arguments: str) -> int:
    """Run `make test`; its exit code."""
    with timed("make test"):
        return subprocess.call(inside(name, f"make test ARGS={shlex.quote(arguments)}"))


@contextmanager
def base_image(folder: Path, given: argparse.Namespace) -> Iterator[str]:
    """The image that was asked for, or one of Debian's packages, removed at the end."""
    if given.base is not None:
        yield given.base
        return
    root, archive, image = folder / "root", folder / "root.tar", f"{folder.name}:{given.suite}"
    with timed(f"image of Debian's {given.suite}"):
        packages = ("--variant=minbase", f"--include={PACKAGES}")
        run("debootstrap", *packages, given.suite, root, given.mirror)
        run("tar", "-C", root, "-cf", archive, ".")
        run("podman", "import", archive, image)
    shutil.rmtree(root)
    archive.unlink()
    try:
        yield image
    finally:
        run("podman", "rmi", "--force", image)


@contextmanager
def container(folder: Path, image: str) -> Iterator[str]:
    """A running container with the clone and pip's configuration; removed at the end."""
    name = folder.name
    config, clone = folder / "pip.conf", folder / "clone"
    named = write_pip_configuration(config)
    run("git", "clone", "--quiet", ROOT, clone)
    lent = [f"--volume={each}:{each}:ro" for each in named if each.is_dir()]
    run("podman", "run", "--detach", "--name", name, "--network", "host", *lent, image, *IDLE)
    try:
        copied = {config: "/etc/pip.conf", clone: CHECKOUT}
        copied |= {each: str(each) for each in named if each.is_file()}
        for source, target in copied.items():
            run("podman", "exec", name, "mkdir", "--parents", Path(target).parent)
            run("podman", "cp", source, f"{name}:{target}")
        yield name
    finally:
        run("podman", "rm", "--force", "--time", "0", name)


def write_pip_configuration(path: Path) -> set[Path]:
    """Write this machine's configuration of pip; the folders and files that it names."""
    found = configparser.RawConfigParser()
    listed = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):  # the environment wins
        key, _, value = line.partition("=")
        section, _, option = key.replace(":env:", "global").partition(".")
        if not found.has_section(section):
            found.add_section(section)
        found.set(section, option, ast.literal_eval(value))
    with path.open("w") as file:
        found.write(file)
    words = [
        word for section in found.values() for value in section.values() for word in value.split()
    ]
    return {place for word in words if (place := local_place(word)) is not None}


def local_place(word: str) -> Path | None:
    """The folder or file that a word of the configuration names, if it is on this machine."""
    parts = urlsplit(word)
    path = Path(unquote(parts.path))
    if parts.scheme not in ("", "file") or not path.is_absolute() or not path.exists():
        return None
    # The files of a package index lie beside its folder "simple".
    return path.parent if path.name == "simple" else path


def inside(name: str, script: str) -> list[str]:
    """The command that runs a line of shell in the clone."""
    return ["podman", "exec", "--workdir", CHECKOUT, name, "sh", "-c", script]


def run(*command: str | Path) -> str:
    """What a command prints; a failure ends the check with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def called(url: str, body: dict[str, Any] | None = None) -> Any:
    """The answer of the service."""
    headers = {"content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, headers)) as answer:  # noqa: S310 - an address of ours
        return json.load(answer)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    started = time.monotonic()
    yield
    print(f"{time.monotonic() - started:6.0f} s  {what}", flush=True)


if __name__ == "__main__":
    main()
