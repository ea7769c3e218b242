"""Evaluations, replayed decisions and the export on the console, in a real browser."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.test_console import (
    PATIENCE,
    Lab,
    browser as browser,
    check,
    lab as lab,
    log_in,
    watched,
)

pytestmark = pytest.mark.slow


def evaluate(page: Page, lab: Lab) -> None:
    """From the form to the result, which comes by itself."""
    page.goto(f"{lab.url}/console/experiments/doses/evaluations")
    check(page)
    page.get_by_text("Always the same arm").click()
    page.get_by_label("mid").check()
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator("#plot-values svg")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("rowheader", name="arm:mid")).to_be_visible()
    check(page)


def test_an_evaluation_is_started_and_read(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        evaluate(page, lab)
        page.get_by_role("link", name="Evaluations", exact=True).click()
        expect(page.locator(".pill.done")).to_have_count(1)


def test_a_decision_is_replayed_and_the_log_exported(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        body = {"experiment": "doses", "source": {"context": [0.1, -0.2, 0.3, 0.4]}}
        assert lab.http.post("/select", json=body).status_code == 200
        page.goto(f"{lab.url}/console/experiments/doses/log")
        with page.expect_download() as download:
            page.get_by_role("link", name="Export").click()
        assert len(download.value.path().read_text().splitlines()) == 1 + 2 * 48 + 1
        page.get_by_role("link", name="replay this decision").first.click()
        expect(page.get_by_text("Derived again, byte for byte")).to_be_visible()
        check(page)


def test_evaluations_are_served_in_the_dark_and_on_a_phone(lab: Lab, browser: Browser):
    options = {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}
    with watched(browser, lab.url, **options) as page:
        log_in(page, lab)
        evaluate(page, lab)
