"""The documentation's site: built with warnings as errors, whole, and near to its start."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.processes.service import ROOT

CLICKS = 2


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.anchors |= {each for each in (found.get("id"), found.get("name")) if each}
        self.links += [each for each in (found.get("href"), found.get("src")) if each]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "docs.site", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def inside(path: Path, link: str) -> tuple[Path, str] | None:
    """Where a link within the site leads: a file and an anchor."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    return target, unquote(parts.fragment)


@pytest.mark.slow
def test_every_link_within_the_site_resolves(pages: dict[Path, Page]):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            found = inside(path, link)
            if found is None:
                continue
            target, anchor = found
            is_missing = target in pages and anchor and anchor not in pages[target].anchors
            if not target.exists() or is_missing:
                broken.append((path.name, link))
    assert broken == []
    assert len(pages) > 60


@pytest.mark.slow
def test_every_page_is_two_clicks_from_the_start(site: Path, pages: dict[Path, Page]):
    reached = {site / "index.html"}
    for _ in range(CLICKS):
        links = [(path, link) for path in reached for link in pages[path].links]
        found = {inside(path, link) for path, link in links}
        reached |= {each[0] for each in found if each and each[0] in pages}
    written = {
        (site / each.relative_to(ROOT)).with_suffix(".html")
        for each in (*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md")
    }
    assert written - reached == set()


@pytest.mark.slow
def test_the_site_has_references_a_gallery_and_a_search(site: Path, pages: dict[Path, Page]):
    api = (site / "docs" / "api-reference.html").read_text()
    assert "POST /target/select" in api
    client = (site / "docs" / "client-reference.html").read_text()
    for name in ("Client", "target_select", "ProblemError"):
        assert f"daband_client.{name}" in client or name in client
    assert (
        len([each for each in pages[site / "docs" / "gallery.html"].links if "_images" in each])
        >= 7
    )
    assert "bandit" in (site / "searchindex.js").read_text()
