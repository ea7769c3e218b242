"""The reports: whole, safe, offline, and drawn by a real browser."""

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from model.config import BanditConfig
from service.evaluating.presenting.html_report import ESTIMATORS, page as evaluation_page
from service.pages.plot_style import COLOURS, SERIES
from service.reporting.figures import SIGNS, limits_text, number
from tests.integration.learning.test_transfer import judged
from tests.support.api import DOSES, Api, running_api
from tests.support.learning import EPISODE, TRAINING, create, idle_state, play
from tests.support.processes.browser import layout, overflow, screenshot

CONFIG = {**DOSES["config"], "holdout_share": 0.6}
WIDTH, PHONE = 1200, 360
# Curves may cover one another, but a legend's line has dots of its pure colour at this scale.
SCALE = 3
# Colours that a plot must show; the rest is drawn in ink.
SOURCE, TARGET = COLOURS["source"], COLOURS["target"]
INKS: dict[str, list[Any]] = {
    "learning": [SOURCE, TARGET],
    "diagnostics": SERIES[:4],
    "expected": [*SERIES[:2], COLOURS["caution"], COLOURS["bad"]],
    "domains": [SOURCE, TARGET],
    "arms": SERIES[:1],
    "shares": [SOURCE, TARGET],
    "gate": [COLOURS["good"]],
    "regret": [TARGET],
}
CARD = "#f4f6f8"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(f"sqlite:///{tmp_path / 'daband.db'}", **TRAINING) as running:
        yield running


async def page_of(api: Api) -> str:
    answer = await api.http.get("/experiments/doses/report")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


@dataclass(frozen=True)
class Reported:
    """A report, and the judgement that it shows."""

    page: str
    judgement: dict[str, Any]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """The report of an experiment that has something of everything; made once, it takes a while."""
    return asyncio.run(full_report(tmp_path_factory.mktemp("full")))


async def full_report(folder: Path) -> Reported:
    async with running_api(f"sqlite:///{folder / 'daband.db'}", **TRAINING) as api:
        await play_everything(api)
        judgement = await judged(api)
        return Reported(await page_of(api), judgement)


async def play_everything(api: Api) -> None:
    await create(api, config=CONFIG)
    target_ids = await play(api, 4 * EPISODE)
    await idle_state(api, 4 * EPISODE)
    await api.http.post("/experiments/doses/phase", json={"phase": "continued"})
    for place, decision_id in enumerate(target_ids[:20]):
        await api.reward(decision_id, float(place % 2))
    await idle_state(api, 4 * EPISODE + 20)


def share_of(ink: Any, pixels: Any) -> float:
    """The share of pixels that have nearly this colour."""
    return float((np.abs(pixels - np.array(to_rgb(ink))).max(axis=2) < 0.06).mean())


@pytest.fixture(scope="module")
def stored(full: Reported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report as a file."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(full.page)
    return path


def test_chromium_draws_every_plot_without_a_network(stored: Path):
    boxes, height = layout(stored, WIDTH)
    assert set(boxes) == {f"plot-{name}" for name in INKS}
    pixels = imread(screenshot(stored, WIDTH, height, SCALE))[:, :, :3]
    for name, inks in INKS.items():
        x, y, width, tall = boxes[f"plot-{name}"]
        assert width > 300, name
        assert tall > 100, name
        drawn = pixels[SCALE * y : SCALE * (y + tall), SCALE * x : SCALE * (x + width)]
        for ink in inks:
            assert share_of(ink, drawn) > 5e-5, (name, ink)
        assert share_of(CARD, drawn) > 0.3, name  # a plot, not a block
        assert (drawn.max(axis=2) < 0.5).mean() > 1e-3, name  # axes and labels


@pytest.mark.slow
def test_the_page_is_dark_where_the_reader_wants_it(stored: Path):
    _, height = layout(stored, WIDTH)
    pixels = imread(screenshot(stored, WIDTH, height, is_dark=True))[:, :, :3]
    assert pixels.mean() < 0.3
    assert share_of("white", pixels) < 0.01


def test_a_phone_shows_the_page_without_sideways_scrolling(stored: Path):
    assert overflow(stored, PHONE) == (PHONE, [])


def test_the_page_needs_nothing_else(full: Reported):
    page = full.page
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    assert "@import" not in page
    assert "default-src 'none'" in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_says_the_verdict_its_figures_and_what_to_do_next(full: Reported):
    page, found = full.page, full.judgement
    word = found["verdict"]["word"]
    assert f'<p class="word">{word}</p>' in page
    assert "<strong>Next:</strong>" in page
    last = found["versions"][-1]
    for name, sign in SIGNS.items():
        assert f">{last['signs'][name]:{sign.format}}</td>" in page
        assert limits_text(name) in page
        assert escape(sign.meaning) in page
    assert f">{number(last['diagnostics']['divergence'])}</td>" in page
    assert "encoder activated" in page


def test_the_page_says_when_it_was_made_what_is_recommended_and_what_is_in_force(full: Reported):
    page = full.page
    assert re.search(r"Made on \d{4}-\d\d-\d\d \d\d:\d\d UTC", page)
    for arm in DOSES["arms"]:
        assert f'scope="row">{arm}</th>' in page
    assert "Expected reward in the target" in page
    for field in dataclasses.fields(BanditConfig):
        assert f'scope="row">{field.name}</th>' in page


def test_the_page_can_be_read_without_seeing_it(full: Reported):
    page = full.page
    assert '<html lang="en">' in page
    assert "<title>Transfer report: doses</title>" in page
    assert page.count("<h1>") == 1
    drawings = re.findall(r"<svg[^>]*>", page)
    assert len(drawings) == len(INKS)
    assert all('role="img"' in each and "aria-labelledby" in each for each in drawings)
    assert "<th>" not in page  # each says whether it names a column or a row


async def test_an_experiment_without_a_target_has_a_report_too(api: Api):
    await create(api)
    page = await page_of(api)
    assert '<p class="word">not judged</p>' in page
    assert page.count("Nothing to show yet.") >= 5
    for i in range(EPISODE):
        answer = (await api.select(f"r-{i}")).json()
        await api.reward(answer["source"]["decision_id"], float(i % 2))
    await idle_state(api, EPISODE)
    page = await page_of(api)
    assert '<p class="word">not judged</p>' in page
    assert re.search(r'<figure id="plot-learning">\s*<h3>Rewards earned</h3>\s*<svg', page)


async def test_names_are_shown_as_they_are(api: Api):
    arms = ["<script>alert(1)</script>", "$x_1$ & co", "a" * 100]
    await create(api, arms=arms)
    for i in range(6):
        body = {"target": {"context": [0.1, 0.2, 0.3, 0.4]}, "source": {"context": [1, 0, 0, 1]}}
        answer = (await api.select(f"r-{i}", **body)).json()
        await api.reward(answer["source"]["decision_id"], 1.0)
    await idle_state(api, 6)
    page = await page_of(api)
    assert "<script" not in page
    assert "$x_1$ &amp; co" in page


async def test_contexts_by_arm_have_a_report_without_arms(api: Api):
    await create(api, context={"kind": "per_arm", "shape": [4]})
    contexts = {"low": [0.1, 0.2, 0.3, 0.4], "mid": [1.0, 0.0, 0.0, 0.0]}
    for i in range(4):
        sides = {"source": {"contexts": contexts}, "target": {"contexts": contexts}}
        answer = (await api.select(f"r-{i}", **sides)).json()
        await api.reward(answer["source"]["decision_id"], 1.0)
    await idle_state(api, 4)
    page = await page_of(api)
    assert 'id="plot-domains"' in page
    assert 'id="plot-arms"' not in page


@pytest.mark.slow
def test_an_evaluation_fits_a_phone_too(tmp_path: Path):
    found = {
        "value": 0.61,
        "interval": [0.5, 0.7],
        "standard_error": 0.05,
        "method": "Cressie-Read",
    }
    candidate = {
        "name": "system:nlinucb,alpha=0.2,episode_length=128",
        "value": 0.61,
        "warnings": ["the effective sample size is small"],
        "estimates": dict.fromkeys(ESTIMATORS, found),
        "support": {"effective_rounds": 88.0, "overlap": 1.0, "max_weight": 20.0},
        "bootstrap": [0.5, 0.7],
        "sequence": [0.2, 1.0],
        "target": None,
        "curve": [[64, 0.5, 0.0, 1.0], [640, 0.6, 0.3, 0.8]],
    }
    result = {
        "experiment": "demo-01a1ef60-1523-7004-bb36-7346c5f2215c",
        "domain": "source",
        "rounds": 640,
        "confidence": 0.95,
        "logged": {"value": 0.4, "interval": [0.3, 0.45]},
        "candidates": 3 * [candidate],
    }
    path = tmp_path / "evaluation.html"
    path.write_text(evaluation_page(result, datetime(2026, 11, 18, tzinfo=UTC)))
    assert overflow(path, PHONE) == (PHONE, [])
    assert set(layout(path, WIDTH)[0]) == {"plot-values", *(f"plot-growth-{n}" for n in range(3))}
