"""Single cells on the command line: `daband fit`, `log import`, `score` and `upload` of .h5ad files."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import daband_client
from model import ContextKind, Learner, exported, manifest_of, to_bytes
from service.cli.main import app
from service.experiment_spec import ExperimentSpec
from service.formats.cells.genes import LOG1P_CPM, CellOptions
from service.formats.cells.tables import cell_table
from service.formats.files import reading
from service.formats.surveying import surveyed_columns
from service.formats.tables import TableFile
from tests.support.builders import make_rounds, teach
from tests.support.cells import write_cells
from tests.support.learning import QUICK_TRAINING

MOUSE, HUMAN = ["Ins1", "Gcg", "Sst", "Rn7sk"], ["SST", "GCG", "INS", "MALAT1"]
OPTIONS = ("--arm", "arm", "--reward", "right", "--id", "_index")


def cells(count: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """Counts of four genes, of which the first two tell the type."""
    rng = np.random.default_rng(seed)
    types = rng.integers(0, 2, count)
    means = np.where(types[:, None] == 0, [40, 4, 20, 30], [4, 40, 20, 30])
    return rng.poisson(means).astype(np.float64), [("beta", "alpha")[each] for each in types]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mouse cells with arms and rewards, human cells without, and the map of their genes."""
    made, rng = tmp_path_factory.mktemp("cells"), np.random.default_rng(3)
    counts, types = cells(300, 1)
    arms = [str(each) for each in rng.choice(["alpha", "beta"], 300)]
    right = np.array([float(arm == kind) for arm, kind in zip(arms, types, strict=True)])
    obs = {"arm": arms, "right": right, "type": types}
    write_cells(made / "mouse.h5ad", counts, MOUSE, obs, "csr_matrix")
    counts, types = cells(90, 2)
    write_cells(made / "human.h5ad", counts[:, [2, 1, 0, 3]], HUMAN, {"type": types}, "csc_matrix")
    (made / "map.csv").write_text("Ins1,INS\nGcg,GCG\nSst,SST\n")
    return made


def daband(*words: str) -> Result:
    return CliRunner(env={"DABAND_TRAINING": "thread"}).invoke(app, [*words])


def test_two_files_of_cells_are_fitted_and_scored(folder: Path, tmp_path: Path):
    arms, policy = tmp_path / "arms.csv", tmp_path / "policy.safetensors"
    words = (
        *("fit", "--source", str(folder / "mouse.h5ad"), "--target", str(folder / "human.h5ad")),
        *OPTIONS,
        *(
            "--counts",
            "--orthologs",
            str(folder / "map.csv"),
            "--config",
            json.dumps(QUICK_TRAINING),
        ),
        *("--out", str(arms), "--policy", str(policy)),
    )
    done = daband(*words)
    assert done.exit_code == 0, done.output
    assert "rewards of mouse.h5ad, " in done.output
    assert "decided   90 rows of human.h5ad: " in done.output
    rows = list(csv.DictReader(arms.read_text().splitlines()))
    assert [row["id"] for row in rows] == [f"cell{number}" for number in range(90)]
    columns = manifest_of(policy.read_bytes())["context"]["columns"]
    expected = {"type": "numeric", "unit": LOG1P_CPM}
    assert columns == [{"name": name, **expected} for name in ("SST", "GCG", "INS")]
    scored = tmp_path / "scored.csv"
    again = daband(
        *("score", "--policy", str(policy), "--contexts", str(folder / "human.h5ad")),
        *("--id", "_index", "--out", str(scored)),
    )
    assert again.exit_code == 0, again.output
    assert scored.read_text() == arms.read_text()


def test_cells_are_imported_into_a_new_and_an_existing_experiment(folder: Path, tmp_path: Path):
    words = (
        *("log", "import", "cells", str(folder / "mouse.h5ad"), *OPTIONS, "--counts"),
        *("--orthologs", str(folder / "map.csv"), "--genes", "2"),
        *("--config", json.dumps(QUICK_TRAINING), "--data-dir", str(tmp_path / "data")),
    )
    assert "300 rounds with 300 rewards" in (done := daband(*words)).output, done.output
    assert "were already in cells" in daband(*words).output
    back = tmp_path / "back.jsonl"
    daband("log", "export", "cells", str(back), "--data-dir", str(tmp_path / "data"))
    with reading(back) as log:
        found = list(log)
        assert log.header.table is not None
        assert [each.name for each in log.header.table.columns] == ["INS", "GCG"]
    counts, _ = cells(300, 1)
    first = np.log1p(counts[0, :2] * (1e6 / counts[0].sum())).astype(np.float32)
    assert np.frombuffer(found[0].context, "<f4").tolist() == first.tolist()
    assert found[0].extra["id"] == "cell0"


def test_cells_are_uploaded_by_the_columns_of_the_experiment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    columns = [
        {"name": name, "type": "numeric", "unit": LOG1P_CPM} for name in ("INS", "GCG", "SST")
    ]
    context = SimpleNamespace(columns=columns)
    asked: list[Any] = []

    def upload(_: object, name: str, rows: Any, request_id: str) -> dict[str, int]:
        asked.append((name, rows, request_id))
        return {"contexts": len(rows)}

    monkeypatch.setattr(daband_client.Client, "upload_contexts", upload)
    monkeypatch.setattr(
        daband_client.Client, "experiment", lambda *_: SimpleNamespace(context=context)
    )
    done = daband("upload", "cells", str(folder / "human.h5ad"))
    assert done.exit_code == 0, done.output
    ((name, rows, request_id),) = asked
    assert (name, request_id) == ("cells", "human.h5ad")
    counts, _ = cells(90, 2)
    expected = np.log1p(counts[:, :3] * (1e6 / counts.sum(axis=1))[:, None])
    assert np.array_equal(rows, expected.astype(np.float32))
    table = tmp_path / "humans.csv"
    table.write_text("SST,GCG,INS\n1,2,3\n")
    assert daband("upload", "cells", str(table)).exit_code == 0
    assert asked[-1][1].tolist() == [[3, 2, 1]]
    context.columns = None
    done = daband("upload", "cells", str(table))
    assert done.exit_code == 2
    assert "have no columns" in done.output


def test_a_policy_of_plain_values_takes_them_as_they_are(folder: Path, tmp_path: Path):
    made = tmp_path / "table.parquet"
    counts, _ = cells(90, 2)
    pq.write_table(pa.table({"INS": counts[:, 0], "GCG": counts[:, 1]}), made)
    schema = surveyed_columns([(TableFile(made), ())]).schema
    spec = ExperimentSpec(
        "x", ("a", "b"), ContextKind.SHARED, (2,), config=QUICK_TRAINING, table=schema
    )
    learner = Learner(spec.bandit_config(), seed=1)
    teach(learner, make_rounds(learner.config, 48))
    policy = tmp_path / "policy.safetensors"
    policy.write_bytes(exported(to_bytes(learner, 3), spec.export_facts()))
    from_cells, from_table = (
        daband("score", "--policy", str(policy), "--contexts", str(path)).output
        for path in (folder / "human.h5ad", made)
    )
    assert from_cells == from_table != ""
    table = cell_table(folder / "human.h5ad", [], schema, CellOptions(), tmp_path)
    assert pq.read_table(table).column_names == ["INS", "GCG"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--source", "mouse.h5ad", "--target", "map.csv"), "either both files hold cells"),
        (("--source", "map.csv", "--target", "map.csv", "--counts"), "are for .h5ad files"),
        (("--source", "mouse.h5ad", "--target", "human.h5ad"), "share no gene"),
        (("--source", "no.h5ad", "--target", "human.h5ad"), "No such file"),
        (
            ("--source", "mouse.h5ad", "--target", "human.h5ad", "--orthologs", "no.csv"),
            "No such file",
        ),
    ],
)
def test_what_cannot_be_fitted_is_said(folder: Path, words: tuple[str, ...], reason: str):
    names = [str(folder / each) if "." in each else each for each in words]
    done = daband("fit", *names, *OPTIONS)
    assert done.exit_code == 2
    assert reason in done.output
