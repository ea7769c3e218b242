"""Every page of the console in Chromium in each of its states: empty, full of odd names, loading, away."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.e2e.test_console import Lab, browser as browser, check, lab as lab, log_in, watched
from tests.support.api import TAUGHT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ODD = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "שלום \u202e low",
]
LONG = "x" * 100
LONG_ARM = "a" * 100
COLUMNS: list[dict[str, Any]] = [
    {"name": "<script>alert(1)</script>", "type": "numeric"},
    {"name": "{{ 7 * 7 }} " + "c" * 100, "type": "categorical", "values": [*ODD, LONG_ARM]},
    {"name": "שלום", "type": "boolean"},
]
ROWS = [
    {each["name"]: value for each, value in zip(COLUMNS, (number / 7, level, True), strict=True)}
    for number, level in enumerate([*ODD, LONG_ARM])
]
ROUNDS = 1000
TABS = ("", "/target", "/log", "/evaluations", "/history")

FORMS: tuple[dict[str, Any], ...] = (
    {"viewport": {"width": 390, "height": 800}},
    {"color_scheme": "dark"},
)


@pytest.fixture
def odd(lab: Lab) -> Lab:
    """Names that nobody would choose everywhere, a thousand rounds, an evaluation, an old reason."""
    config = {**TAUGHT["config"], "episode_length": 400}
    declared = {"arms": [*ODD, LONG_ARM], "context": {"kind": "table", "columns": COLUMNS}}
    made = lab.http.post(
        "/experiments", json={**TAUGHT, "config": config, "name": LONG, **declared}
    )
    assert made.status_code == 201, made.text
    sides = [{"context": ROWS[number % len(ROWS)]} for number in range(ROUNDS)]
    rounds = [
        {
            "request_id": ODD[number] if number < len(ODD) else f"r-{number}",
            "source": side,
            "target": side,
        }
        for number, side in enumerate(sides)
    ]
    found = posted(lab, "/select/batch", {"experiment": LONG, "rounds": rounds})["rounds"]
    rewards = [{"decision_id": each["source"]["decision_id"], "reward": 0.5} for each in found]
    posted(lab, "/reward/batch", {"rewards": rewards})
    for status, reason in (("paused", ODD[0]), ("active", ODD[1])):
        body = {"status": status, "reason": reason, "by": ODD[2]}
        assert lab.http.patch(f"/experiments/{LONG}", json=body).status_code == 200
    candidates = [{"kind": "uniform"}, *({"kind": "arm", "arm": each} for each in declared["arms"])]
    job = posted(lab, "/evaluations", {"experiment": LONG, "candidates": candidates})
    wait_until(
        lambda: lab.http.get(f"/evaluations/{job['evaluation_id']}").json()["status"] == "done"
    )
    wait_until(lambda: is_learned(lab))
    return lab


def posted(lab: Lab, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = lab.http.post(path, json=body)
    assert answer.status_code < 300, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_learned(lab: Lab) -> bool:
    state = lab.http.get(f"/experiments/{LONG}/state").json()
    return bool(state["encoder_version"] and not state["lag"] and not state["is_training"])


def look(page: Page, path: str) -> None:
    page.goto(path)
    assert page.locator("main").get_by_text("49", exact=True).count() == 0
    check(page)


@pytest.mark.parametrize("options", FORMS)
def test_odd_names_and_a_thousand_rows_stay_text_in_their_frame(
    odd: Lab, browser: Browser, options: dict[str, Any]
):
    place = f"{odd.url}/console/experiments/{LONG}"
    with watched(browser, odd.url, **options) as page:
        page.on("dialog", lambda each: pytest.fail(f"a script ran: {each.message}"))
        log_in(page, odd)
        for path in ("", "/system", "/create", "/create/tables"):
            look(page, f"{odd.url}/console{path}")
        for tab in TABS:
            look(page, f"{place}{tab}")
        page.goto(f"{place}/evaluations")
        page.locator(".list a").first.click()
        expect(page.locator("#plot-values svg")).to_be_visible()
        check(page)
        page.goto(f"{place}/log?domain=source")
        page.get_by_role("link", name="replay this decision").first.click()
        expect(page.locator(".headline")).to_be_visible()
        check(page)
        decide_for_a_thousand(page, place)
        page.goto(place)
        page.locator(".latents").scroll_into_view_if_needed()
        expect(page.locator("svg.scatter").first).to_be_visible()
        page.get_by_role("button", name="Roll back").click()
        check(page)


def decide_for_a_thousand(page: Page, place: str) -> None:
    page.goto(f"{place}/target")
    names = ",".join(f'"{each["name"]}"' for each in COLUMNS)
    row = f'0.5,"{ODD[0]}",true'
    page.get_by_label("Rows as JSON or CSV").fill("\n".join([names, *[row] * ROUNDS]))
    page.get_by_role("button", name="Decide").click()
    expect(page.get_by_text("1,000 decisions")).to_be_visible()
    expect(page.locator(".answers > li")).to_have_count(200)
    check(page)


def test_an_empty_experiment_says_what_is_missing_on_every_page(lab: Lab, browser: Browser):
    assert lab.http.post("/experiments", json={**TAUGHT, "name": "empty"}).status_code == 201
    place = f"{lab.url}/console/experiments/empty"
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        for path in (*(f"{place}{tab}" for tab in TABS), f"{lab.url}/console?q=nothing"):
            look(page, path)
        page.goto(f"{place}/target")
        page.get_by_role("button", name="Decide").click()
        expect(page.get_by_text("no nearest examples yet")).to_be_visible()
        check(page)


def test_what_is_missing_or_refused_is_a_page_too(lab: Lab, browser: Browser):
    place = f"{lab.url}/console/experiments"
    with watched(browser, lab.url, may_say="Failed to load resource") as page:
        log_in(page, lab)
        for path in (f"{place}/nobody", f"{place}/doses/log?before=x", f"{place}/doses/log/none"):
            look(page, path)
            expect(page.get_by_role("link", name="All experiments")).to_be_visible()
        page.goto(f"{place}/doses/target")
        page.get_by_label("Rows as JSON or CSV").fill("[1, 2")
        page.get_by_role("button", name="Decide").click()
        expect(page.get_by_role("alert")).to_contain_text("not valid JSON")
        check(page)
        page.goto(f"{place}/doses/evaluations")
        page.get_by_label("Others, one in a line").fill(ODD[0])
        page.get_by_role("button", name="Evaluate", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(ODD[0])
        check(page)


def test_what_loads_says_so_and_a_service_that_is_away_too(lab: Lab, browser: Browser):
    held: list[Route] = []
    with watched(browser, lab.url, may_say="Failed to load resource") as page:
        log_in(page, lab)
        page.route("**/latents", lambda route: held.append(route))
        page.goto(f"{lab.url}/console/experiments/doses")
        page.locator(".latents").scroll_into_view_if_needed()
        expect(page.get_by_text("Encoding the contexts")).to_be_visible()
        check(page)
        while not held:  # the request comes when the place is in view
            page.wait_for_timeout(50)
        held[0].continue_()
        expect(page.locator("svg.scatter").first).to_be_visible()
        page.route("**/live?*", lambda route: route.fulfill(status=503))
        expect(page.locator(".offline")).to_be_visible()
        check(page)
        page.unroute("**/live?*")
        expect(page.locator(".offline")).to_be_hidden()


def test_a_hidden_page_asks_for_nothing(lab: Lab, browser: Browser):
    with watched(browser, lab.url) as page:
        log_in(page, lab)
        page.add_init_script(
            "Object.defineProperty(document, 'hidden', {get: () => !window.isSeen})"
        )
        page.clock.install()
        asked: list[str] = []
        page.on("request", lambda each: asked.append(each.url) if "/live?" in each.url else None)
        page.goto(f"{lab.url}/console/experiments/doses")
        page.clock.run_for(20_000)
        assert asked == []
        page.evaluate("window.isSeen = true")
        with page.expect_response("**/live?*"):
            page.clock.run_for(5_000)
        assert asked != []
