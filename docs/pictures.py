"""`python -m docs.pictures URL EXPERIMENT MICE`: the pictures of docs/console.md, of a running service.

EXPERIMENT has the columns of `ROWS`, MICE those of the tutorial's tables. Needs Chromium. Each page is taken in light, in dark and at the width of a phone.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.processes.browser import chromium

FOLDER = Path(__file__).parent / "console"
FORMS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (390, "light")}
TALLEST = 2300  # pixels of a picture
COLOURS = 128
TUTORIAL = Path(__file__).parent / "tutorial"
ROWS = """age,weight,strain,treated_before
7,21.5,B6,no
14,26,BALB,yes
28,31,CD1,no
19,,B6,yes
"""


def main(url: str, experiment: str, mice: str) -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    place = f"{url}/console/experiments/{experiment}"
    pages = {
        "experiments": f"{url}/console",
        "experiment": place,
        "tables": f"{url}/console/create/tables",
        "create": f"{url}/console/create",
        "history": f"{url}/console/experiments/{mice}/history",
        "target": f"{place}/target",
        "log": f"{place}/log?rewarded=true",
        "decision": f"{place}/log?domain=source",
        "evaluation": f"{place}/evaluations",
        "system": f"{url}/console/system",
    }
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for form, (width, scheme) in FORMS.items():
            for name, address in pages.items():
                taken(browser, address, FOLDER / f"{name}-{form}.png", width, scheme)
        browser.close()


def decided(page: Page) -> None:
    """Decisions for some rows."""
    page.get_by_label("Rows as JSON or CSV").fill(ROWS)
    page.get_by_role("button", name="Decide").click()
    page.locator(".answers").wait_for()


def surveyed(page: Page) -> None:
    """The two tables, looked at."""
    page.get_by_label("Source", exact=True).set_input_files(TUTORIAL / "mice.csv")
    page.get_by_label("Target", exact=True).set_input_files(TUTORIAL / "humans.csv")
    page.get_by_text("past rounds with").wait_for()
    page.get_by_label("Name", exact=True).fill("spring")


def typed(page: Page) -> None:
    """An experiment, typed."""
    page.get_by_label("Name of column 1").fill("age")
    page.get_by_label("Name of column 2").fill("strain")
    page.get_by_label("Type of column 2").select_option("categorical")
    page.get_by_label("Levels of column 2").fill("B6, BALB, CD1")
    page.get_by_label("Name", exact=True).fill("doses")
    page.get_by_label("Arms").fill("low\nmid\nhigh")


def previewed(page: Page) -> None:
    """A history, looked at."""
    page.get_by_label("Past rounds").set_input_files(TUTORIAL / "mice.csv")
    page.get_by_text("First rows").wait_for()


def derived(page: Page) -> None:
    """One decision, derived again."""
    page.get_by_text("replay this").first.click()
    page.locator(".headline").wait_for()


def evaluated(page: Page) -> None:
    """The newest evaluation."""
    page.locator(".list a").first.click()
    page.locator("#plot-values").wait_for()


FILLED: dict[str, Callable[[Page], None]] = {
    "evaluations": evaluated,
    "log?domain=source": derived,
    "target": decided,
    "tables": surveyed,
    "create": typed,
    "history": previewed,
}


def taken(browser: Browser, address: str, path: Path, width: int, scheme: str) -> None:
    """One picture of a page, with what comes after it was loaded."""
    page = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.goto(address)
    fill = FILLED.get(address.rpartition("/")[2])
    if fill is not None:
        fill(page)
    for late in page.locator(".latents").all():
        late.scroll_into_view_if_needed()
        page.locator("svg.scatter").first.wait_for()
    page.mouse.wheel(0, -10_000)
    page.screenshot(path=path, full_page=True)
    page.close()
    with Image.open(path) as picture:
        shown = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, TALLEST)))
        shown.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
