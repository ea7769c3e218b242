"""Programs of the system for the tests: found, or installed as packages where that is allowed."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
_LOCK = Path(tempfile.gettempdir()) / f"daband-packages-{os.geteuid()}.lock"

Found = TypeVar("Found")


@cache
def program(*names: str, package: str | None = None) -> str:
    """The path of the first of these programs that is there."""
    return found_or_installed(lambda: _on_path(names), package or names[0])


def found_or_installed(
    find: Callable[[], Found | None],
    package: str,
    install: Callable[[str], None] | None = None,
    lock: Path = _LOCK,
) -> Found:
    """What `find` finds, at once or after its package was installed."""
    found = find()
    if found is None:
        # The processes of a test run begin together, and apt serves one of them at a time.
        with _locked(lock):
            found = find()
            if found is None:
                (install or _apt_install)(package)
                found = find()
    assert found is not None, f"these tests need {package}: install it or give its place"
    return found


def _on_path(names: tuple[str, ...]) -> str | None:
    paths = (shutil.which(name, path=_PATH) for name in names)
    return next((path for path in paths if path), None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _apt_install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Others on the machine may be installing, too.
    patient = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3"]
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        subprocess.run([*patient, *step], env=environment, check=False)
