"""The glossary names what exists, in plain words; links and files that pages name exist."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# Private words that the terms of HTTP, Postgres, PyTorch and the bandit literature replaced.
PRIVATE = (
    *("door", "lane", "express lane", "hot", "turn", "turn_selecting", "asker", "realm", "visit"),
    *("aside", "tally", "promptly", "eager", "leadership", "providing", "loading", "tower"),
    *("towers", "committee", "views", "settle", "weigh", "shares", "said", "odds", "told", "who"),
    *("whom", "what waits", "leave_the_past_alone", r"(?<!request )(?<!reward )head"),
)


def rows(text: str) -> list[list[str]]:
    """The cells of each term's row."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "term"]


def found(name: str) -> Any:
    """The file, or what the dotted name stands for."""
    if "/" in name:
        assert (ROOT / name).is_file(), name
        return ROOT / name
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def private_words(text: str) -> list[str]:
    return [word for word in PRIVATE if re.search(rf"\b{word}\b", text, re.IGNORECASE)]


ROWS = rows(GLOSSARY)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_term_has_one_sentence_and_a_name_that_exists(row: list[str]):
    _, meaning, code = row
    assert meaning.endswith("."), meaning
    assert ". " not in meaning, meaning
    assert found(code.strip("`")) is not None


def test_the_glossary_has_terms_once_and_in_plain_words():
    terms = [row[0] for row in ROWS]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)
    assert private_words(GLOSSARY) == []


def test_names_of_tests_have_plain_words():
    folders = (ROOT / "tests", ROOT / "client" / "tests")
    names = [
        name
        for folder in folders
        for path in folder.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    ]
    assert len(names) > 1000
    private = {"door", "hot", "told", "turn", "who", "whom", "somebody", "asker", "lane"}
    private |= {"anybody", "ear", "nobody", "realm", "stranger"}
    assert [name for name in names if private & set(name.split("_"))] == []


def test_private_words_and_missing_names_are_found():
    assert private_words("The head of the log is told to the committee.") == [
        *("committee", "told", PRIVATE[-1])
    ]
    assert private_words("A request head, a reward head.") == []
    with pytest.raises(AttributeError):
        found("model.rounds.NoSuchName")
    with pytest.raises(AssertionError):
        found("service/no_such_file.py")


def test_readme_and_architecture_lead_to_the_glossary():
    assert "](docs/glossary.md)" in (ROOT / "README.md").read_text()
    assert "](glossary.md)" in (ROOT / "docs" / "architecture.md").read_text()


def test_the_index_and_the_readme_lead_to_every_page():
    folder = ROOT / "docs"
    index = (folder / "README.md").read_text()
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()
    readme = (ROOT / "README.md").read_text()
    for name in ("README.md", "tutorial.md", "concepts.md", "faq.md", "alternatives.md"):
        assert f"](docs/{name})" in readme
    assert "Towards Domain Adaptive Neural Contextual Bandits" in readme


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_file_that_a_page_names_exists(page: Path):
    folders = [ROOT, ROOT / "service"]
    for name in re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`", page.read_text()):
        assert any((folder / name).is_file() for folder in folders), name
