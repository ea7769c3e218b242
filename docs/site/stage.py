"""Copies the pages as they lie in the repository, and adds what a site needs: contents, reference, gallery.

Links between pages stay as they are. Links to folders lead to a list of their pages, links to code to its
path as text: the site holds no code.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from docs.site.reference import api_reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CITATION.cff")
CLIENTS = ("client/README.md", "client-js/README.md")
PICTURES = {".png", ".svg"}
KEPT = {".md", ".json", ".jsonl", ".csv", ".py", *PICTURES}
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
LISTED = ("docs/decisions", "docs/history")
CONTENTS = {
    "Start": ["quickstart", "tutorial", "concepts", "alternatives", "faq", "glossary"],
    "Use": ["console", "api", "client", "protocols", "images", "cells", "evaluation"],
    "Operate": ["operations", "scaling", "security", "load", "performance"],
    "Method": ["algorithm", "results", "results/ledger", "data"],
    "Develop": ["architecture", "testing"],
}


def stage(folder: Path) -> None:
    """Fill an empty folder with all pages of the site."""
    for path in (*(ROOT / each for each in (*PAGES, *CLIENTS)), *_documents()):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in LISTED:
        (folder / name / "index.md").write_text(_list_of(folder, name))
    described = json.loads((DOCS / "openapi.json").read_text())
    (folder / "docs" / "api-reference.md").write_text(api_reference(described))
    (folder / "docs" / "client-reference.md").write_text(CLIENT)
    (folder / "docs" / "gallery.md").write_text(_gallery(folder))
    for page in folder.rglob("*.md"):
        page.write_text(_linked(page, folder))
    readme = folder / "README.md"
    readme.write_text(readme.read_text() + _contents())


CLIENT = """# Client reference

[The client](client.md) explains what these are for.

```{eval-rst}
.. automodule:: daband_client
   :members:
   :imported-members:
   :undoc-members:
```
"""


def _documents() -> Iterable[Path]:
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in KEPT and "site" not in path.relative_to(DOCS).parts:
            yield path


def _linked(page: Path, folder: Path) -> str:
    """A page whose links lead to pages; code is left alone."""
    parts = CODE.split(page.read_text())
    return "".join(
        part if number % 2 else LINK.sub(lambda found: _link(page, folder, *found.groups("")), part)
        for number, part in enumerate(parts)
    )


def _link(page: Path, folder: Path, text: str, target: str, anchor: str) -> str:
    if "://" in target or target.startswith("mailto:"):
        return f"{text}({target}{anchor})"
    there = Path(os.path.normpath(page.parent / target))
    if there.is_dir() and (there / "index.md").exists():
        return f"{text}({target.rstrip('/')}/index.md)"
    if there.is_file():
        return f"{text}({target}{anchor})"
    if not (ROOT / there.relative_to(folder)).exists():
        raise ValueError(f"{page.relative_to(folder)} links to {target}, which does not exist")
    return f"`{there.relative_to(folder)}`"


def _list_of(folder: Path, name: str) -> str:
    pages = sorted(each for each in (folder / name).glob("*.md") if each.name != "index.md")
    heads = [each.read_text().splitlines()[0].removeprefix("# ") for each in pages]
    lines = [f"- [{head}]({each.name})" for head, each in zip(heads, pages, strict=True)]
    title = Path(name).name.capitalize()
    return "\n".join([f"# {title}", "", *lines, "", _tree("", [each.stem for each in pages])])


def _gallery(folder: Path) -> str:
    """Every picture with the pages that show it."""
    texts = {each: each.read_text() for each in sorted((folder / "docs").rglob("*.md"))}
    parts = [
        "# Gallery",
        "",
        "Every plot of the documentation, with the pages that explain it.",
        "",
    ]
    for picture in sorted((folder / "docs").rglob("*")):
        if picture.suffix not in PICTURES:
            continue
        name = os.path.relpath(picture, folder / "docs")
        shown = [page for page, text in texts.items() if f"{picture.name})" in text]
        pages = [os.path.relpath(page, folder / "docs") for page in shown] or ["../README.md"]
        links = ", ".join(f"[{Path(each).stem}]({each})" for each in pages)
        parts += [f"## {picture.stem}", "", f"![{picture.stem}]({name})", "", links, ""]
    return "\n".join(parts)


def _contents() -> str:
    parts = [_tree(title, [f"docs/{each}" for each in names]) for title, names in CONTENTS.items()]
    references = ["docs/api-reference", "docs/client-reference", "docs/gallery", "docs/README"]
    others = ["docs/decisions/index", "docs/history/index"]
    project = ["CHANGELOG", "CONTRIBUTING", "SECURITY", "client/README", "client-js/README"]
    parts += [_tree("Reference", references), _tree("Project", [*project, *others])]
    return "\n".join(("", *parts))


def _tree(caption: str, names: list[str]) -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["```{toctree}", *options, "", *names, "```", ""])
