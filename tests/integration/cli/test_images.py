"""`daband log import` and `daband fit` of images: a folder or a zip archive, and a table that names them."""

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from daband_client import AsyncClient
from model import manifest_of
from service.cli.main import app
from tests.integration.cli.test_fit import learned
from tests.support.api import asgi, running_api
from tests.support.images import png, written, zipped
from tests.support.learning import QUICK_TRAINING
from tests.support.storage import sqlite_url

ARMS = ("dark", "light")
CONFIG: dict[str, Any] = {
    **QUICK_TRAINING,
    "episode_length": 16,
    "hidden_sizes": [4],
    "steps_per_episode": 2,
    "batch_size": 8,
    "reservoir_size": 64,
}
NAMES = ("--arm", "wash", "--reward", "growth", "--image", "file")
COUNT = 40


def plate(light: bool, seed: int) -> bytes:
    """4 × 4 pixels, dark or light."""
    random = np.random.default_rng(seed)
    return png((random.integers(0, 100, (4, 4, 3)) + 150 * light).astype(np.uint8))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mice/` with `plates.csv` and its images, `mice.zip`, and `humans/` without labels."""
    folder, lines, files = tmp_path_factory.mktemp("lab"), ["file,cage,wash,growth"], {}
    for number in range(COUNT):
        name, light = f"day/{number}.png", number % 2 == 0
        files[name] = plate(light, number)
        arm = number // 2 % 2
        lines.append(f"{name},7,{ARMS[arm]},{9 if arm == light else 1}")
    table = ("\n".join(lines) + "\n").encode()
    written(folder / "mice", {**files, "plates.csv": table})
    (folder / "mice.zip").write_bytes(zipped({**files, "plates.csv": table}))
    written(folder / "humans", {f"h{n}.png": plate(n % 2 == 0, 100 + n) for n in range(12)})
    return folder


def daband(*words: str | Path) -> Result:
    return CliRunner(env={"DABAND_TRAINING": "thread"}).invoke(app, [*map(str, words)])


def done(*words: str | Path) -> str:
    result = daband(*words)
    assert result.exit_code == 0, result.output
    return result.output


def fit(lab: Path, source: str, out: Path, *further: str) -> Result:
    files = ("--out", out / "arms.csv", "--policy", out / "policy.safetensors")
    paths = ("--source", lab / source, "--target", lab / "humans")
    return daband("fit", *paths, *NAMES, *files, "--config", json.dumps(CONFIG), *further)


def manifest(content: bytes) -> dict[str, Any]:
    found = manifest_of(content)
    del found["version"]
    return found


async def test_a_fit_of_a_folder_decides_as_the_service_with_the_same_archive(
    lab: Path, tmp_path: Path
):
    report = ("--report", str(tmp_path / "report.html"))
    result = await asyncio.to_thread(fit, lab, "mice/plates.csv", tmp_path, *report)
    assert result.exit_code == 0, result.output
    assert "40 rewards of plates.csv" in result.output
    assert "column cage is not used: the context is the image" in result.output
    rows = list(csv.DictReader((tmp_path / "arms.csv").read_text().splitlines()))
    assert [each["id"] for each in rows] == sorted(f"h{number}.png" for number in range(12))
    assert {each["arm"] for each in rows} <= set(ARMS)
    assert "<svg" in (tmp_path / "report.html").read_text()
    found = manifest((tmp_path / "policy.safetensors").read_bytes())
    assert found["context"] == {"kind": "shared", "shape": [3, 4, 4], "image": {"resize": False}}
    url = sqlite_url(tmp_path / "service.db")
    async with running_api(url) as api:
        transport = httpx.ASGITransport(asgi(api.app, api.services))
        async with AsyncClient("http://test", transport=transport) as client:
            context = {"kind": "image", "shape": [3, 4, 4]}
            unit = (1.0, 9.0)
            await client.create_experiment("fit", ARMS, context, config=CONFIG, reward_range=unit)
            columns: dict[str, Any] = {"arm": "wash", "reward": "growth", "image": "file"}
            await client.import_history("fit", lab / "mice.zip", ignore=["cage"], **columns)
            await client.upload_contexts("fit", lab / "humans")
    async with running_api(url, trainer_inside=True) as api:
        assert await learned(api) == found


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (("--id", "file"), "images are named by their files"),
        (("--shape", "2", "--shape", "4", "--shape", "4"), "with 1 channel (grey) or 3 (RGB)"),
        (("--shape", "3", "--shape", "5", "--shape", "5"), "day/0.png: The image has 4 × 4 pixels"),
        (("--images", "nowhere"), "row 1: day/0.png: There is no such file."),
        (("--target", "nowhere"), "nowhere: No such file or directory"),
        (("--target", __file__), "the target is a folder or a zip archive of images"),
        (("--image", "picture"), "There is no column `picture` in plates.csv. Its columns: "),
    ],
)
def test_a_fit_that_cannot_be_done_says_why(
    lab: Path, tmp_path: Path, change: tuple[str, ...], detail: str
):
    refused = fit(lab, "mice/plates.csv", tmp_path, *change)
    assert refused.exit_code == 2, refused.output
    assert detail in refused.output
    assert "422" not in refused.output
    assert not (tmp_path / "arms.csv").exists()


def test_past_rounds_of_images_are_imported_from_a_folder_or_an_archive(lab: Path, tmp_path: Path):
    words = (*NAMES, "--ignore", "cage", "--data-dir", tmp_path)
    new = ("--config", json.dumps(CONFIG))
    said = done("log", "import", "plates", lab / "mice" / "plates.csv", *words, *new)
    assert "40 rounds with 40 rewards" in said
    assert "were already in plates" in done("log", "import", "plates", lab / "mice.zip", *words)
    elsewhere = tmp_path / "table.csv"
    elsewhere.write_bytes((lab / "mice" / "plates.csv").read_bytes())
    table = ("log", "import", "plates", elsewhere)
    assert "were already in" in done(*table, *words, "--images", lab / "mice")
    assert "There is no such file" in daband(*table, *words).output
    small = ("--shape", "1", "--shape", "2", "--shape", "2", "--resize")
    done("log", "import", "small", lab / "mice.zip", *words, *new, *small)
    wrong = daband(*table, "--arm", "wash", "--reward", "growth", *small, "--data-dir", tmp_path)
    assert "--images, --shape and --resize need --image" in wrong.output
