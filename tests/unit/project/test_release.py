"""What a stranger expects of a released project is there and agrees with itself."""

import json
import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import daband_client
from release import check, licences

ROOT = Path(__file__).parents[3]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_both_wheels_have_the_whole_licence():
    licence = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert (ROOT / "client" / "LICENSE").read_text() == licence
    for folder in (ROOT, ROOT / "client"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
        assert not [each for each in project["classifiers"] if "Private" in each]


def test_the_citation_is_of_this_version_and_names_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (daband_client.__version__, "Apache-2.0")
    assert cited["preferred-citation"]["url"] == "https://arxiv.org/abs/2406.09564"


def test_the_typescript_client_has_this_version():
    package = json.loads((ROOT / "client-js" / "package.json").read_text())
    assert (package["version"], package["license"]) == (daband_client.__version__, "Apache-2.0")


def test_the_changelog_has_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text
    assert daband_client.__version__ in text


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda each: each.name
)
def test_workflows_and_templates_are_valid(path: Path):
    content = yaml.safe_load(path.read_text())
    steps = [step for job in content.get("jobs", {}).values() for step in job["steps"]]
    for step in steps:
        words = step.get("run", "").split()
        if words[:1] == ["make"]:
            assert {each for each in words[1:] if "=" not in each} <= TARGETS
    if path.name == "ci.yml":
        assert content["jobs"]["test"]["strategy"]["matrix"]["python-version"][0] == "3.11"


def test_the_hooks_are_commands_of_the_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
    for hook in hooks:
        assert hook["entry"].removesuffix(" --force-exclude") in makefile


def test_all_that_runs_with_the_service_may_ship_with_it():
    found = licences.report(frozenset({"otel", "h5ad", "ray"}))
    assert {"torch", "fastapi", "numpy", "h5py"} <= {each.name for each in found}
    assert [each for each in found if not each.is_allowed] == []


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND (MIT OR GPL-2.0-only)", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND AGPL-3.0-only", False),
        ("LGPL-3.0-or-later OR GPL-2.0-only", False),
        ("unknown", False),
    ],
)
def test_a_licence_is_allowed_if_all_its_parts_are(expression: str, is_allowed: bool):
    assert licences.is_allowed(expression) is is_allowed


def test_a_refused_licence_fails_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(licences, "ALLOWED", licences.ALLOWED - {"MPL-2.0"})
    monkeypatch.setattr("sys.argv", ["licences"])
    with pytest.raises(SystemExit, match="certifi"):
        licences.main()


def test_notices_hold_the_texts():
    text = licences.notices()
    assert "certifi" in text
    assert "Mozilla Public License" in text


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (["service/app.py", "daband-1.dist-info/licenses/LICENSE"], None),
        (["tests/test_a.py", "daband-1.dist-info/licenses/LICENSE"], "outside its packages: tests"),
        (["service/app.py"], "lacks its licence"),
    ],
)
def test_a_wheel_holds_its_packages_and_the_licence(
    tmp_path: Path, names: list[str], refusal: str | None
):
    wheel = tmp_path / "daband-1-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    if refusal is None:
        check.check_contents("daband", wheel)
    else:
        with pytest.raises(SystemExit, match=refusal):
            check.check_contents("daband", wheel)
