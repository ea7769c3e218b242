"""`daband score` and `daband upload` with folders and archives of images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from model import ContextKind, Learner, exported, to_bytes
from service.cli.main import app
from service.experiment_spec import ExperimentSpec
from service.images.schema import ImageSchema
from tests.support.builders import make_rounds, teach
from tests.support.images import colours, numbers, png, written, zipped

SHAPE = (3, 6, 8)
CONFIG = {"episode_length": 16, "latent_size": 8, "hidden_sizes": [4], "steps_per_episode": 2}
PIXELS = colours(6)
FILES = {f"{row}.png": png(each) for row, each in enumerate(PIXELS)}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy file of an experiment of images that has learned something."""
    image = ImageSchema.of(SHAPE, resize=False)
    spec = ExperimentSpec(
        "doses", ("low", "high"), ContextKind.SHARED, SHAPE, config=CONFIG, image=image
    )
    learner = Learner(spec.bandit_config(), seed=1)
    teach(learner, make_rounds(learner.config, 48))
    path = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    path.write_bytes(exported(to_bytes(learner, 3), spec.export_facts()))
    return path


def score(policy: Path, contexts: Path, *options: str) -> Any:
    arguments = ["score", "--policy", str(policy), "--contexts", str(contexts), *options]
    return CliRunner().invoke(app, arguments)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_folder_an_archive_and_the_numbers_are_scored_alike(policy: Path, tmp_path: Path):
    folder = written(tmp_path / "images", FILES)
    found = lines(score(policy, folder).output)
    assert [each.pop("id") for each in found] == sorted(FILES)
    archive, npy = tmp_path / "images.zip", tmp_path / "images.npy"
    archive.write_bytes(zipped(FILES))
    np.save(npy, numbers(PIXELS))
    done = score(policy, npy)
    assert done.exception is None, repr(done.exception)
    assert lines(done.output) == found
    from_archive = lines(score(policy, archive).output)
    assert [{**each, "id": name} for each, name in zip(found, sorted(FILES), strict=True)] == (
        from_archive
    )


def test_names_are_the_ids_of_a_csv_file(policy: Path, tmp_path: Path):
    folder, out = written(tmp_path / "images", FILES), tmp_path / "scored.csv"
    assert score(policy, folder, "--out", str(out)).exit_code == 0
    header, *rows = out.read_text().splitlines()
    assert header.startswith("id,arm,")
    assert [row.split(",")[0] for row in rows] == sorted(FILES)


def test_the_file_that_does_not_fit_is_named(policy: Path, tmp_path: Path):
    folder = written(tmp_path / "images", {**FILES, "large.png": png(colours(1, 12, 20)[0])})
    done = score(policy, folder)
    assert done.exit_code == 2
    assert "large.png: The image has 20 × 12 pixels; the experiment takes 8 × 6" in done.output


def test_a_policy_without_images_refuses_a_folder(tmp_path: Path):
    spec = ExperimentSpec("doses", ("low", "high"), ContextKind.SHARED, (4,), config=CONFIG)
    learner = Learner(spec.bandit_config(), seed=1)
    path = tmp_path / "policy.safetensors"
    path.write_bytes(exported(to_bytes(learner, 3), spec.export_facts()))
    done = score(path, written(tmp_path / "images", FILES))
    assert done.exit_code == 2
    assert "takes no images" in done.output


@pytest.mark.parametrize("name", ["images", "images.zip"])
def test_upload_gives_folders_and_archives_to_the_client(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import daband_client

    asked: list[tuple[Any, ...]] = []

    def upload(_: object, *arguments: Any) -> dict[str, int]:
        asked.append(arguments)
        return {"contexts": 6}

    written(tmp_path / "images", FILES)
    monkeypatch.setattr(daband_client.Client, "upload_contexts", upload)
    done = CliRunner().invoke(app, ["upload", "doses", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert asked == [("doses", tmp_path / name, name)]
