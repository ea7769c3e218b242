"""`python -m docs.pictures URL`: the pictures of docs/console.md, of a running service without keys.

Where there is no experiment `doses`, it and `mice` are made first, and learn: that takes minutes.
Needs Chromium. Each page is taken in light, in dark and at the width of a phone.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from daband_client import Client, Round
from tests.support.processes.browser import chromium

FOLDER = Path(__file__).parent / "console"
FORMS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (390, "light")}
TALLEST = 1900  # pixels of a picture
COLOURS = 128
TUTORIAL = Path(__file__).parent / "tutorial"
MICE, HUMANS = TUTORIAL / "mice.csv", TUTORIAL / "humans.csv"
ARMS, STRAINS = ["low", "mid", "high"], ["B6", "BALB", "CD1"]
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "numeric", "unit": "weeks"},
    {"name": "weight", "type": "numeric", "unit": "g", "missing": True, "fill": 24},
    {"name": "strain", "type": "categorical", "values": STRAINS},
    {"name": "treated_before", "type": "boolean"},
]
ROWS = """age,weight,strain,treated_before
7,21.5,B6,true
14,26,BALB,false
28,31,CD1,true
19,,CD1,false
"""
ROUNDS, BATCH = 1280, 40
TAUGHT = 8  # batches, after which the next ones wait until they are learned
NOT_FOUND = 404
MINUTES = 60_000  # milliseconds


def main(url: str) -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    place = f"{url}/console/experiments/doses"
    pages = {
        "experiments": f"{url}/console",
        "experiment": place,
        "tables": f"{url}/console/create/tables",
        "create": f"{url}/console/create",
        "history": f"{url}/console/experiments/mice/history",
        "target": f"{place}/target",
        "log": f"{place}/log?rewarded=true",
        "decision": f"{place}/log?domain=source",
        "evaluation": f"{place}/evaluations",
        "evaluations": f"{place}/evaluations?",  # the list and the forms
        "system": f"{url}/console/system",
    }
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        if httpx.get(f"{url}/experiments/doses").status_code == NOT_FOUND:
            prepare(browser.new_page(), url)
        for form, (width, scheme) in FORMS.items():
            for name, address in pages.items():
                taken(browser, address, FOLDER / f"{name}-{form}.png", width, scheme)
        browser.close()


def prepare(page: Page, url: str) -> None:
    """Two experiments: `mice` of the tutorial's tables, and `doses`, which has learned and been evaluated."""
    page.set_default_timeout(10 * MINUTES)
    page.goto(f"{url}/console/create/tables")
    surveyed(page)
    page.get_by_label("Name", exact=True).fill("mice")
    page.get_by_label("Reason").fill("the mice of spring")
    page.get_by_role("button", name="Create and import").click()
    page.wait_for_url("**?done=tables")
    play(url)
    while not is_learned(url):
        page.wait_for_timeout(1000)
    page.goto(f"{url}/console/experiments/doses/evaluations")
    page.get_by_text("Always the same arm", exact=True).click()
    for arm in ARMS:
        page.get_by_label(arm, exact=True).check()
    page.get_by_role("button", name="Evaluate", exact=True).click()
    page.locator("#plot-values").wait_for()
    page.close()


def play(url: str) -> None:
    """Rounds of a simulated laboratory, whose target is older and of another strain."""
    with Client(url) as client:
        context = {"kind": "table", "columns": COLUMNS}
        client.create_experiment(name="doses", arms=ARMS, context=context, seed=1)
        rng = np.random.default_rng(1)
        for number in range(ROUNDS // BATCH):
            while number % TAUGHT == 0 and not is_learned(url):
                time.sleep(1)
            sources = [animal(rng, 14.0, (0.6, 0.3, 0.1)) for _ in range(BATCH)]
            targets = [animal(rng, 22.0, (0.1, 0.3, 0.6)) for _ in range(BATCH)]
            made = client.select_many(
                "doses",
                [
                    Round(source=one, target=other)
                    for one, other in zip(sources, targets, strict=True)
                ],
            )
            chosen = [each.source for each in made if each.source is not None]
            rewards = {
                each.decision_id: earned(rng, each.arm, context)
                for each, context in zip(chosen, sources, strict=True)
            }
            client.reward_many(rewards)


def animal(rng: np.random.Generator, age: float, strains: Sequence[float]) -> dict[str, Any]:
    """A row of the table."""
    return {
        "age": round(float(rng.normal(age, 6.0)), 1),
        "weight": None if rng.random() < 0.1 else round(float(rng.normal(24.0, 3.0)), 1),
        "strain": str(rng.choice(STRAINS, p=strains)),
        "treated_before": bool(rng.random() < 0.4),
    }


def earned(rng: np.random.Generator, arm: str, row: Mapping[str, Any]) -> float:
    """The best dose rises with the age, and is one lower after a treatment."""
    best = (row["age"] > 12) + (row["age"] > 20) - row["treated_before"]
    return float(rng.random() < (0.85 if ARMS[max(0, best)] == arm else 0.35))


def is_learned(url: str) -> bool:
    """Whether the trainer has nothing left to do."""
    names = [each["name"] for each in httpx.get(f"{url}/experiments").json()["experiments"]]
    states = [httpx.get(f"{url}/experiments/{name}/state").json() for name in names]
    return not any(
        each["lag"]
        or each.get("is_training")
        or each["training"]["due_updates"]
        or each["training"]["judgement"] == "due"
        for each in states
    )


def decided(page: Page) -> None:
    """Decisions for some rows."""
    page.get_by_label("Rows as JSON or CSV").fill(ROWS)
    page.get_by_role("button", name="Decide").click()
    page.locator(".answers").wait_for()


def surveyed(page: Page) -> None:
    """The two tables, looked at."""
    page.get_by_label("Source", exact=True).set_input_files(MICE)
    page.get_by_label("Target", exact=True).set_input_files(HUMANS)
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
    page.get_by_label("Past rounds").set_input_files(MICE)
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
