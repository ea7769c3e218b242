"""A real Chromium, without a window and without a network."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.processes.servers import install_package
from tests.support.waiting import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Runs in the page's copy only: where every figure is, and whether its drawing has an extent.
MEASURE = """
<script>
const boxes = Object.fromEntries([...document.querySelectorAll("figure")].map(figure => {
  const box = (figure.querySelector("svg") ?? figure).getBoundingClientRect();
  return [figure.id, [box.x, box.y, box.width, box.height].map(Math.round)];
}));
document.title = JSON.stringify({boxes, height: document.documentElement.scrollHeight});
</script>
"""


def chromium() -> str:
    """The browser's path; it is installed where that is allowed."""
    for attempt in range(2):
        for name in NAMES:
            if found := shutil.which(name):
                return found
        if not attempt:
            install_package("chromium")
    raise AssertionError("there is no Chromium: install the package chromium")


def run(page: Path, *options: str) -> str:
    """What Chromium prints; names are not resolved, so nothing outside can be reached."""
    profile = page.parent / "profile"
    done = subprocess.run(
        [
            *(chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
            *(*options, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return done.stdout


def layout(page: Path, width: int) -> tuple[dict[str, list[int]], int]:
    """Box of every figure (x, y, width, height) by id, and the page's height."""
    text = page.read_text()
    policy = re.compile(r"<meta http-equiv=.Content-Security-Policy.[^>]*>")
    copy = page.with_name("measured.html")
    copy.write_text(policy.sub("", text).replace("</body>", f"{MEASURE}</body>"))
    dom = run(copy, f"--window-size={width},1000", "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None, dom[:500]
    found = json.loads(title[1])
    return found["boxes"], found["height"]


def screenshot(page: Path, width: int, height: int, scale: int = 1) -> Path:
    """A picture of the whole page as it is, with scale x scale dots a pixel of the layout."""
    picture = page.with_suffix(".png")
    size, dots = f"--window-size={width},{height}", f"--force-device-scale-factor={scale}"
    run(page, size, dots, f"--screenshot={picture}")
    return picture
