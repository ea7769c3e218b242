"""Evaluations, replayed decisions and the export on the console, in a real browser."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.test_console import (
    Lab,
    browser as browser,
    check,
    evaluate,
    lab as lab,
    log_in,
    watched,
)

pytestmark = pytest.mark.slow

PLACE = "{}/console/experiments/doses"


def test_an_evaluation_is_started_and_read(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        page.goto(PLACE.format(lab.url))
        evaluate(page, "mid")
        page.get_by_role("link", name="Evaluations", exact=True).click()
        expect(page.locator(".pill.done")).to_have_count(1)


def test_an_exported_log_is_evaluated_as_a_file(lab: Lab, browser: Browser, tmp_path: Path):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        page.goto(f"{PLACE.format(lab.url)}/log")
        with page.expect_download() as download:
            page.get_by_role("link", name="Export").click()
        log = tmp_path / "doses.jsonl"
        download.value.save_as(log)
        page.goto(f"{PLACE.format(lab.url)}/evaluations")
        page.get_by_label("Log file").set_input_files(log)
        page.get_by_label("Candidates, one in a line").fill("uniform\narm:mid")
        page.get_by_role("button", name="Evaluate the file").click()
        expect(page.locator("#plot-values svg")).to_be_visible()
        check(page)


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
    options: dict[str, Any] = {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}
    with watched(browser, lab.url, **options) as page:
        log_in(page, lab)
        page.goto(PLACE.format(lab.url))
        evaluate(page, "mid")
