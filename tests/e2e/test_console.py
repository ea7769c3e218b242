"""The console in a real browser: a person's path through it, and what each page must not do.

axe.min.js is axe-core 4.14.0 from npm, unchanged (MPL-2.0).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from service.auth.tenants import TenantScope
from tests.support.api import CONTEXT, OTHER_CONTEXT, TAUGHT
from tests.support.keys import bearer, make_key
from tests.support.processes.browser import chromium
from tests.support.processes.service import ServiceProcess
from tests.support.storage import migrated, sqlite_url
from tests.support.waiting import PATIENCE_SECONDS, wait_until

AXE = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text()
RUN_AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => `${each.id}: ${each.nodes.map(node => node.html).join(" ")}`)"""
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
PATIENCE = 1000 * PATIENCE_SECONDS


class Lab:
    """A service with keys and an experiment that has learned a little."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.http = httpx.Client(base_url=url, headers=bearer(key), timeout=PATIENCE_SECONDS)

    def fill(self, rounds: int) -> None:
        assert self.http.post("/experiments", json=TAUGHT).status_code == 201
        self.play("doses", rounds)
        wait_until(lambda: self.state()["encoder_version"] > 0)
        wait_until(lambda: self.state()["lag"] == 0 and not self.state()["is_training"])

    def refuse(self) -> None:
        """An experiment `strict`, whose gate refuses every encoder."""
        config = {**TAUGHT["config"], "gate_rank": 100.0}
        declared = {**TAUGHT, "name": "strict", "config": config}
        assert self.http.post("/experiments", json=declared).status_code == 201
        self.play("strict", 16)
        wait_until(
            lambda: bool(self.http.get("/experiments/strict/candidates").json()["candidates"])
        )

    def play(self, name: str, rounds: int) -> None:
        """Rounds with a target and rewards, under arms of the usual names."""
        sides = [CONTEXT, OTHER_CONTEXT]
        asked = [
            {"source": {"context": sides[number % 2]}, "target": {"context": sides[number % 2]}}
            for number in range(rounds)
        ]
        body = {"experiment": name, "rounds": asked}
        found = self.http.post("/select/batch", json=body).json()["rounds"]
        rewards = [
            {"decision_id": each["source"]["decision_id"], "reward": number % 3 / 2}
            for number, each in enumerate(found)
        ]
        self.http.post("/reward/batch", json={"rewards": rewards})

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/experiments/doses/state").json()
        return found

    def trail(self, name: str = "doses") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(f"/experiments/{name}/audit").json()["entries"]
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    path = tmp_path / "data" / "daband.db"
    path.parent.mkdir()
    asyncio.run(migrated(sqlite_url(path)))
    key = asyncio.run(make_key(sqlite_url(path), TenantScope()))
    with ServiceProcess(
        tmp_path, AUTH="required", TRAINING="thread", POLL_SECONDS="0.1"
    ) as service:
        lab = Lab(service.url, key)
        lab.fill(48)
        yield lab
        lab.http.close()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def watched(
    browser: Browser, url: str, *, may_say: str | None = None, **options: Any
) -> Iterator[Page]:
    """A page on which nothing may fail but what it `may_say`, and which may ask the service alone."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
    page.on("request", lambda each: check_origin(each.url, url, wrong))
    yield page
    context.close()
    assert [each for each in wrong if may_say is None or may_say not in each] == []


def check_origin(asked: str, url: str, wrong: list[str]) -> None:
    if not asked.startswith((f"{url}/", "data:")):
        wrong.append(f"a request to {asked}")


def check(page: Page) -> None:
    """No serious obstacle for anybody, and no sideways scrolling."""
    page.evaluate(AXE)
    assert page.evaluate(RUN_AXE) == [], page.url
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1], (page.url, widths)


def log_in(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.url}/")
    check(page)
    page.get_by_label("API key").fill(lab.key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()


def act(page: Page, opener: str, verb: str, reason: str) -> None:
    page.get_by_role("button", name=opener, exact=True).click()
    confirm(page, verb, reason)


def confirm(page: Page, verb: str, reason: str) -> None:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_label("Your name").fill("Ada")
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(page.locator(".notice.good")).to_be_visible()


@pytest.mark.slow
def test_a_person_goes_through_the_console(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        check(page)
        page.get_by_role("link", name="doses").click()
        expect(page.locator(".curve canvas")).to_be_visible()
        expect(page.locator(".timeline li")).not_to_have_count(0)
        page.locator(".latents").scroll_into_view_if_needed()
        expect(page.locator("svg.scatter").first).to_be_visible()
        check(page)

        before = page.get_by_text("48 in all")
        expect(before).to_be_visible()
        answer = lab.http.post(
            "/select", json={"experiment": "doses", "source": {"context": CONTEXT}}
        ).json()
        lab.http.post(
            "/reward", json={"decision_id": answer["source"]["decision_id"], "reward": 1.0}
        )
        expect(page.get_by_text("49 in all")).to_be_visible()  # by itself
        expect(page.locator(".curve canvas")).to_be_visible()

        act(page, "Pause", "Pause", "a <b>new</b> batch")
        act(page, "Resume", "Resume", "it is here")
        act(page, "Roll back", "Roll back", "too eager")
        reasons = [(each["details"] or {}).get("reason") for each in lab.trail()]
        assert {"a <b>new</b> batch", "it is here", "too eager"} <= set(reasons)

        page.get_by_role("link", name="Decide", exact=True).click()
        page.get_by_label("Rows as JSON or CSV").fill("[[1,2,3,4],[0,0,0,0],[4,3,2,1]]")
        page.get_by_role("button", name="Decide").click()
        expect(page.locator(".answers > li")).to_have_count(3)
        check(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as CSV").click()
        assert len(download.value.path().read_text().splitlines()) == 4

        page.get_by_role("link", name="Log", exact=True).click()
        page.get_by_label("Reward").select_option("with")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(49)
        check(page)
        page.get_by_role("link", name="System").click()
        expect(page.get_by_text("Ready.")).to_be_visible()
        check(page)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.goto(f"{lab.url}/console")
        expect(page.get_by_label("API key")).to_be_visible()


def create_from_tables(page: Page, lab: Lab) -> None:
    """The tutorial's two tables become the experiment `mice`."""
    page.get_by_role("link", name="New experiment").click()
    check(page)
    page.get_by_label("Source", exact=True).set_input_files(TUTORIAL / "mice.csv")
    page.get_by_label("Target", exact=True).set_input_files(TUTORIAL / "humans.csv")
    expect(page.get_by_text("600 past rounds with 3 arms")).to_be_visible()
    expect(page.get_by_label("Reward what it earned")).to_have_value("shrinkage")
    check(page)
    page.get_by_label("Name", exact=True).fill("doses")
    page.get_by_label("Reason").fill("the mice of <b>spring</b>")
    page.get_by_role("button", name="Create and import").click()
    expect(page.locator("#name-wrong")).to_have_text("An experiment of this name exists already.")
    page.get_by_label("Name", exact=True).fill("mice")
    page.get_by_label("Method").select_option("nlinucb")
    page.get_by_role("button", name="Create and import").click()
    page.wait_for_url("**/experiments/mice?done=tables")
    expect(page.get_by_text("all rows of both tables are in its log")).to_be_visible()


def decide_for_three(page: Page) -> None:
    """Three people of the target, beside the nearest mice."""
    page.get_by_role("link", name="Decide", exact=True).click()
    rows = (TUTORIAL / "humans.csv").read_text().splitlines()[:4]
    page.get_by_label("Rows as JSON or CSV").fill("\n".join(rows))
    page.get_by_role("button", name="Decide").click()
    expect(page.locator(".answers > li")).to_have_count(3)
    expect(page.locator(".answers details")).to_have_count(3)
    expect(page.locator(".answers details[open] tbody tr")).to_have_count(4)  # its own, three mice
    check(page)


def import_again(page: Page) -> None:
    """The same mice are known."""
    page.get_by_role("link", name="Import", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Past rounds").set_input_files(TUTORIAL / "mice.csv")
    expect(page.get_by_label("Arm what was done")).to_have_value("treatment")
    check(page)
    page.get_by_label("Row's name").select_option("mouse")
    page.get_by_label("Reason").fill("once more")
    expect(page.get_by_text("Left out: mouse")).to_have_count(0)
    expect(page.get_by_label("Reason")).to_have_value("once more")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("were already in the log")).to_be_visible()
    check(page)


def begin_evaluation(page: Page, arm: str) -> None:
    page.get_by_role("link", name="Evaluate", exact=True).click()
    check(page)
    page.get_by_text("Always the same arm", exact=True).click()
    page.get_by_label(arm, exact=True).check()
    page.get_by_role("button", name="Evaluate", exact=True).click()


def evaluate(page: Page, arm: str) -> None:
    """From the form to the result, which comes by itself."""
    begin_evaluation(page, arm)
    expect(page.locator("#plot-values svg")).to_be_visible()
    expect(page.get_by_role("rowheader", name=f"arm:{arm}")).to_be_visible()
    check(page)


@pytest.mark.slow
def test_a_person_goes_the_whole_way(lab: Lab, browser: Browser):
    lab.refuse()
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        create_from_tables(page, lab)
        expect(page.get_by_text("600 in all")).to_be_visible()
        expect(page.locator(".timeline li")).not_to_have_count(0)
        judged = page.locator(".headline .word")
        expect(judged).not_to_have_text("not judged", ignore_case=True)
        (created, *_) = lab.trail("mice")
        assert created["details"]["reason"] == "the mice of <b>spring</b>"
        act(page, "Roll back", "Roll back", "too eager")
        expect(page.locator(".timeline").get_by_text("version restored")).to_be_visible()
        decide_for_three(page)
        import_again(page)
        begin_evaluation(page, "placebo")
        expect(page.get_by_text("600 of 600 rounds have no propensity")).to_be_visible()
        check(page)
        page.goto(f"{lab.url}/console/experiments/doses")
        evaluate(page, "mid")

        page.goto(f"{lab.url}/console/experiments/strict")  # whose gate refuses every encoder
        expect(page.locator(".timeline").get_by_text("latents collapsed").first).to_be_visible()
        page.locator(".timeline").get_by_role("button", name="Promote").first.click()
        confirm(page, "Promote", "it is good <i>enough</i>")
        expect(page.locator(".timeline").get_by_text("encoder promoted").first).to_be_visible()
        reasons = [(each["details"] or {}).get("reason") for each in lab.trail("strict")]
        assert "it is good <i>enough</i>" in reasons

        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.goto(f"{lab.url}/console/experiments/mice")
        expect(page.get_by_label("API key")).to_be_visible()


@pytest.mark.slow
def test_an_experiment_is_created_by_the_keyboard(lab: Lab, browser: Browser):
    with watched(browser, lab.url, viewport={"width": 390, "height": 800}) as page:
        log_in(page, lab)
        page.goto(f"{lab.url}/console/create")
        check(page)
        page.get_by_label("Name of column 1").fill("age")
        page.get_by_label("Name of column 2").fill("strain")
        page.get_by_label("Type of column 2").select_option("categorical")
        page.get_by_label("Levels of column 2").fill("B6, BALB")
        page.get_by_role("button", name="Add a column").press("Enter")
        expect(page.get_by_label("Name of column 3")).to_be_focused()
        expect(page.get_by_label("Levels of column 2")).to_have_value("B6, BALB")
        page.get_by_label("Arms").fill("low\nhigh")
        page.get_by_label("Reason").fill("by hand")
        page.get_by_label("Name", exact=True).fill("trial")
        page.get_by_label("Name", exact=True).press("Enter")
        expect(page.get_by_text("The experiment is created.")).to_be_visible()
        check(page)


@pytest.mark.slow
def test_dark_pages_and_phones_are_served_as_well(lab: Lab, browser: Browser):
    for options in (
        {"color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 800}},
    ):
        with watched(browser, lab.url, **options) as page:
            log_in(page, lab)
            place = f"{lab.url}/console/experiments/doses"
            pages = (place, *(f"{place}/{tab}" for tab in ("target", "log", "history")))
            others = ("system", "create", "create/tables")
            for path in (*pages, *(f"{lab.url}/console/{each}" for each in others)):
                page.goto(path)
                check(page)


@pytest.mark.slow
def test_a_dialog_is_opened_and_left_by_the_keyboard(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        page.goto(f"{lab.url}/console/experiments/doses")
        page.get_by_role("button", name="Train now").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        check(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Train now")).to_be_focused()
