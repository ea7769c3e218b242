"""`make release-check`: build both wheels, check them, and use the service's wheel alone.

    python -m release.check [--folder FOLDER] [--lent SITE_PACKAGES]

The wheel is installed into a bare environment, outside the checkout, with the versions of constraints.txt.
With `--lent` the dependencies are those of another environment and nothing is downloaded.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from release.smoke import use

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "daband": {"service", "model", "migrations", "daband_client"},
    "daband_client": {"daband_client"},
}
FEW = 5  # names to show of what should not be there


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a command prints; a failure ends the check with its output."""
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def built(folder: Path, *, is_offline: bool) -> dict[str, Path]:
    """Both wheels by their projects."""
    options = ["--no-build-isolation", "--no-index"] if is_offline else []
    shutil.rmtree(folder, ignore_errors=True)
    for source in (ROOT, ROOT / "client"):
        run(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *options),
            *("--wheel-dir", folder, source),
        )
    found = {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}
    if found.keys() != PACKAGES.keys():
        sys.exit(f"Expected the wheels of {', '.join(PACKAGES)}, found {', '.join(found)}.")
    return found


def check_contents(project: str, wheel: Path) -> None:
    """Nothing lies outside of the packages, and the licence is there."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    outside = [each for each in names if each.partition("/")[0] not in PACKAGES[project] | metadata]
    if outside:
        sys.exit(f"{wheel.name} has files outside its packages: {', '.join(outside[:FEW])}")
    if not any(each.endswith(".dist-info/licenses/LICENSE") for each in names):
        sys.exit(f"{wheel.name} lacks its licence.")


def check_layout(project: str, wheel: Path) -> None:
    """What check-wheel-contents finds in a wheel."""
    # Alembic finds its revisions by path: their names begin with numbers.
    ignored = ["--ignore", "W004"] if "migrations" in PACKAGES[project] else []
    toplevel = ["--no-config", "--toplevel", ",".join(sorted(PACKAGES[project]))]
    run(sys.executable, "-m", "check_wheel_contents", *toplevel, *ignored, wheel)


def environment(folder: Path, wheel: Path, lent: Path | None) -> Path:
    """A bare environment with the wheel; where its commands are."""
    run(sys.executable, "-m", "venv", "--clear", folder)
    python = folder / "bin" / "python"
    if lent is not None:
        (site,) = (folder / "lib").glob("python3*/site-packages")
        (site / "lent.pth").write_text(f"{lent}\n")
    options = ["--no-deps", "--no-index"] if lent else ["--constraint", ROOT / "constraints.txt"]
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *options, wheel)
    return python.parent


def bare(folder: Path) -> dict[str, str]:
    """Our environment without settings, and without a way to the checkout."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DABAND_", "PYTHON", "VIRTUAL_ENV", "MAKE"))
    }
    return kept | {"HOME": str(folder), "PYTHONUNBUFFERED": "1"}


def main() -> None:
    """Build, check and use the wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".release")
    parser.add_argument("--lent", type=Path)
    given = parser.parse_args()
    folder = given.folder.resolve()
    wheels = built(folder / "dist", is_offline=given.lent is not None)
    for project, wheel in wheels.items():
        check_contents(project, wheel)
        check_layout(project, wheel)
        print(f"built   {wheel.name}")
    run(sys.executable, "-m", "twine", "check", "--strict", *wheels.values())
    print("checked by twine and check-wheel-contents")
    commands = environment(folder / "environment", wheels["daband"], given.lent)
    shutil.rmtree(folder / "use", ignore_errors=True)
    (folder / "use").mkdir()
    use(commands, folder / "use", bare(folder / "use"), ROOT / "docs" / "tutorial")


if __name__ == "__main__":
    main()
