"""The image's steps, run without a container engine: the same commands in a clean folder.

The quick test lends the new environment the packages that are installed already, at the versions
of constraints.txt, and allows no index: every step runs as it stands, nothing is downloaded. The
slow one lends nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support import dockerfile, lending
from tests.support.dockerfile import ROOT, Instruction
from tests.support.processes import guard
from tests.support.processes.servers import free_port
from tests.support.processes.service import clean_environment
from tests.support.waiting import PATIENCE_SECONDS, wait_until

PLACES = ("/opt/daband", "/src")


class Image:
    """A folder that stands for the image's root."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        # As in a container: none of our Python's variables.
        inherited = {"PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin", "HOME": str(root)}
        kept = {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        self.environment = inherited | kept | environment
        (self.root / "src").mkdir(parents=True)

    def at(self, text: str) -> str:
        """A command or path with the image's places put under the folder."""
        for place in PLACES:
            text = text.replace(place, f"{self.root}{place}")
        return text

    def follow(self, instruction: Instruction) -> None:
        if instruction.word == "COPY":
            *sources, target = instruction.rest.split()
            for source in sources:
                self._copy(ROOT / source, self.root / "src" / target)
        elif instruction.word == "RUN":
            self.run(instruction.rest)
        elif instruction.word == "ENV":
            self.environment |= dockerfile.environment([instruction])
        elif instruction.word == "ARG":
            name, _, value = instruction.rest.partition("=")
            self.environment.setdefault(name, value)

    def run(self, command: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", self.at(command)],
            cwd=self.root / "src",
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def lend_packages(image: Image) -> None:
    """Let the new environment see what is installed here, but for the project itself."""
    lent = lending.lend_packages(image.root / "lent")
    (site,) = (image.root / "opt" / "daband" / "lib").glob("python3*/site-packages")
    for old in site.glob("setuptools*"):
        shutil.rmtree(old)  # the one that is lent is the one that torch asks for
    (site / "lent.pth").write_text(f"{lent}\n")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    made = Image(tmp_path_factory.mktemp("image"), PIP_NO_INDEX="1", TORCH_INDEX="")
    for instruction in dockerfile.stages()["build"]:
        if "pip uninstall" in instruction.rest:  # what is lent is not to be removed
            command, _, _ = instruction.rest.rpartition(" && ")
            instruction = Instruction("RUN", command)
        made.follow(instruction)
        if "-m venv" in instruction.rest:
            lend_packages(made)
    return made


def settings_of(image: Image, folder: Path) -> dict[str, str]:
    """The final stage's variables, with its folders under the test's."""
    found = dockerfile.environment(dockerfile.stages()["final"])
    found |= {name: str(folder) for name in ("TMPDIR", "DABAND_DATA_DIR", "HOME", "MPLCONFIGDIR")}
    return found | {"PATH": image.at(found["PATH"]).replace("$PATH", image.environment["PATH"])}


@pytest.mark.slow
def test_the_wheel_brings_everything_that_runs(image: Image):
    (site,) = (image.root / "opt" / "daband" / "lib").glob("python3*/site-packages")
    for package in ("model", "service", "migrations", "client/daband_client"):
        name = Path(package).name
        there = {path.relative_to(site / name) for path in (site / name).rglob("*.py")}
        ours = {path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py")}
        assert there == ours
    assert (image.root / "opt" / "daband" / "bin" / "daband").exists()


@pytest.mark.slow
def test_the_licence_texts_are_in_the_image(image: Image):
    notices = (image.root / "opt" / "daband" / "THIRD_PARTY_NOTICES.txt").read_text()
    for words in ("fastapi ", "numpy ", "torch ", "opentelemetry-", "Mozilla Public License"):
        assert words in notices


@pytest.mark.slow
def test_migrate_works_from_the_wheel(image: Image, tmp_path: Path):
    command = ["daband", "migrate"]
    environment = settings_of(image, tmp_path)
    daband = shutil.which("daband", path=environment["PATH"])
    assert daband == str(image.root / "opt" / "daband" / "bin" / "daband")
    done = subprocess.run(
        command, executable=daband, cwd=tmp_path, env=environment, capture_output=True
    )
    assert "schema None → " in done.stdout.decode(), done.stderr.decode()
    assert (tmp_path / "daband.db").exists()


@pytest.mark.slow
def test_the_images_command_serves_from_the_wheel(image: Image, tmp_path: Path):
    port = free_port()
    words = dockerfile.command(dockerfile.stages()["final"])
    words[words.index("--port") + 1] = str(port)
    words[words.index("--host") + 1] = "127.0.0.1"
    environment = clean_environment() | settings_of(image, tmp_path)
    environment.pop("PYTHONPATH", None)
    daband = shutil.which("daband", path=environment["PATH"])
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            words, executable=daband, cwd=tmp_path, env=environment, stdout=out, stderr=out
        )
    guard.watch(process.pid)
    try:
        assert answers(f"http://127.0.0.1:{port}/healthz", process), (tmp_path / "out").read_text()
        assert httpx.get(f"http://127.0.0.1:{port}/docs").is_success
    finally:
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0


def answers(url: str, process: "subprocess.Popen[bytes]") -> bool:
    def is_answered() -> bool:
        try:
            return process.poll() is not None or httpx.get(url).is_success
        except httpx.TransportError:
            return False

    wait_until(is_answered)
    return process.poll() is None


@pytest.mark.study
@pytest.mark.timeout(3600)
def test_the_whole_image_is_built_from_an_index(tmp_path: Path):
    """Downloads everything; torch from the index that pip is set up with."""
    index = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
    )
    torch_index = index.stdout.strip() or "https://pypi.org/simple"
    image = Image(tmp_path / "image", TORCH_INDEX=torch_index)
    for instruction in dockerfile.stages()["build"]:
        image.follow(instruction)
    image.run("/opt/daband/bin/daband migrate --data-dir /src/data")
    assert not (tmp_path / "image" / "opt" / "daband" / "bin" / "pip").exists()
