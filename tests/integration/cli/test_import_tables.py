"""`daband log import` of tables of past rounds, and what comes out again."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from service.formats.files import reading

CONFIG = json.dumps({"latent_size": 4, "hidden_sizes": [8], "episode_length": 64})
OPTIONS = ("--arm", "dose", "--reward", "gain", "--id", "mouse", "--time", "at")


def table(path: Path, count: int = 60, empty: str = "") -> Path:
    lines = ["mouse;age;site;note;dose;gain;at"]
    lines += [
        f"m{n};{n % 9},5;{n % 2 + 1};{empty};{('high', 'low')[n % 2]};{n % 40 - 8};{count - n}"
        for n in range(count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def daband(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(folder)])


def done(folder: Path, *words: str) -> str:
    result = daband(folder, *words)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table_makes_an_experiment_and_is_imported_once(tmp_path: Path):
    file, folder = table(tmp_path / "mice.csv"), tmp_path / "data"
    words = ("log", "import", "mice", str(file), *OPTIONS, "--config", CONFIG)
    said = done(folder, *words, "--categorical", "site")
    assert "60 rounds with 60 rewards are now in mice; none has a propensity" in said
    assert said.splitlines()[:3] == [
        "note: rewards lie between -8 and 31, the smallest and the largest of mice.csv; --reward-range declares "
        "another range",
        "note: column note has no value and is left out",
        "note: --ignore COLUMN leaves out more",
    ]
    again = done(folder, *words)
    assert again.startswith("60 rounds with 60 rewards were already in mice")
    back = tmp_path / "back.jsonl"
    assert "60 decisions" in done(folder, "log", "export", "mice", str(back))
    with reading(back) as log:
        found = list(log)
        assert [each.name for each in log.header.table.columns] == ["age", "site"]  # type: ignore[union-attr]
    assert [each.extra["id"] for each in found[:2]] == ["m59", "m58"]
    assert found[0].time == "1"
    assert {each.propensity for each in found} == {None}
    assert (min(each.reward or 0 for each in found), max(each.reward or 0 for each in found)) == (
        0,
        1,
    )


def test_evaluation_says_why_it_cannot_know(tmp_path: Path):
    file, folder = table(tmp_path / "mice.csv"), tmp_path / "data"
    done(folder, "log", "import", "mice", str(file), *OPTIONS, "--config", CONFIG)
    for words in (("evaluate", "mice"), ("replay", "mice", "--with", "alpha=0.2")):
        refused = daband(folder, *words)
        assert refused.exit_code == 2
        assert "not identifiable: 60 of 60 rounds have no propensity" in refused.output


def test_a_further_table_goes_into_the_experiment_that_is_there(tmp_path: Path):
    folder = tmp_path / "data"
    first, more = table(tmp_path / "mice.csv"), table(tmp_path / "more.csv", 30)
    words = ("--reward-range", "-10", "40")
    done(folder, "log", "import", "mice", str(first), *OPTIONS, *words, "--config", CONFIG)
    assert "30 rounds" in done(folder, "log", "import", "mice", str(more), *OPTIONS)
    other = daband(folder, "log", "import", "mice", str(more), *OPTIONS, "--reward-range", "0", "9")
    assert other.exit_code == 2
    assert "declares another one" in other.output
    filled = table(tmp_path / "filled.csv", 20, empty="seen")
    refused = daband(folder, "log", "import", "mice", str(filled), *OPTIONS)
    assert refused.exit_code == 2
    assert "Unknown column `note`" in refused.output
    done(folder, "log", "import", "mice", str(filled), *OPTIONS, "--ignore", "note")


BAD: list[tuple[str, tuple[str, ...], str]] = [
    ("dose;gain;age\nlow;1;x\nlow;2;y\n", ("--ignore", "tail"), "no column `tail`"),
    ("dose;gain;age\nlow;;1\n", (), "no row with an arm and a reward"),
    ("dose;gain\nlow;1\nhigh;0\n", (), "no column left to be a context"),
    ("dose;gain;age\nlow;1;2\nlow;bad;3\n", (), "row 2: Column `gain` holds no number"),
    ("dose;gain;age\nlow;1;2\n;1;3\n", (), "row 2: Column `dose` may not be missing"),
]


@pytest.mark.parametrize(("text", "words", "detail"), BAD)
def test_a_bad_table_makes_no_experiment(
    tmp_path: Path, text: str, words: tuple[str, ...], detail: str
):
    file, folder = tmp_path / "mice.csv", tmp_path / "data"
    file.write_text(text)
    columns = ("--arm", "dose", "--reward", "gain")
    refused = daband(folder, "log", "import", "mice", str(file), *columns, *words)
    assert refused.exit_code == 2, refused.output
    assert detail in refused.output
    assert daband(folder, "evaluate", "mice").exit_code == 2
    assert "no experiment of this name" in daband(folder, "evaluate", "mice").output


def test_a_missing_file_and_half_of_the_names_are_refused(tmp_path: Path):
    where = str(tmp_path / "nothing.csv")
    assert "No such file" in daband(tmp_path, "log", "import", "mice", where, *OPTIONS).output
    half = daband(tmp_path, "log", "import", "mice", where, "--arm", "dose")
    assert "needs both --arm and --reward" in half.output
