"""A real Chromium, without a window and without a network."""

import html
import json
import re
import subprocess
from pathlib import Path

from tests.support.processes.packages import program
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
    return program(*NAMES)


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


# Runs in a page of its own: what of the framed page is wider than its frame.
OVERFLOW = """<!doctype html><body style="margin:0"><iframe style="border:0;width:{width}px;height:4000px"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const inner = frame.contentDocument;
  const wide = [...inner.querySelectorAll("body *")]
    .filter(each => each.getBoundingClientRect().right > {width} + 0.5)
    .map(each => `${{each.tagName}} ${{each.className}} ${{each.textContent.slice(0, 40)}}`);
  document.title = JSON.stringify([inner.documentElement.scrollWidth, wide]);
}};
frame.srcdoc = {content};
</script>"""


def overflow(page: Path, width: int) -> tuple[int, list[str]]:
    """How wide the page's content is in a frame of this width, and what is wider than the frame."""
    # A window cannot be as narrow as a phone, but a frame can.
    content = json.dumps(page.read_text()).replace("</", "<\\/")
    framing = page.with_name("framing.html")
    framing.write_text(OVERFLOW.format(width=width, content=content))
    dom = run(framing, "--virtual-time-budget=5000", "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None, dom[:500]
    content_width, wide = json.loads(html.unescape(title[1]))
    return content_width, wide


def screenshot(
    page: Path, width: int, height: int, scale: int = 1, *, is_dark: bool = False
) -> Path:
    """A picture of the whole page as it is, with scale x scale dots a pixel of the layout."""
    picture = page.with_suffix(".dark.png" if is_dark else ".png")
    size, dots = f"--window-size={width},{height}", f"--force-device-scale-factor={scale}"
    scheme = f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"
    run(page, size, dots, scheme, f"--screenshot={picture}")
    return picture
