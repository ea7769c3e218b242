"""The transfer report: whole, safe, offline, and drawn by a real browser."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from model.rounds import Domain
from service.reporting.plots import ACCEPTED, COLOURS, PALETTE
from tests.integration.learning.test_transfer import judged
from tests.support.api import DOSES, Api, running_api
from tests.support.learning import EPISODE, TRAINING, create, idle_state, play
from tests.support.processes.browser import layout, screenshot

CONFIG = {**DOSES["config"], "holdout_share": 0.6}
PLOTS = ("learning", "bound", "signs", "domains", "arms", "shares", "gate", "regret")
WIDTH = 1200
# Curves may cover one another, but a legend's line has dots of its pure colour at this scale.
SCALE = 3
# Colours that a plot must show; the rest is drawn in ink.
INKS: dict[str, list[Any]] = {
    "learning": [COLOURS[Domain.SOURCE], COLOURS[Domain.TARGET]],
    "bound": PALETTE[:5],
    "signs": PALETTE[:4],
    "domains": [COLOURS[Domain.SOURCE], COLOURS[Domain.TARGET]],
    "arms": PALETTE[:1],
    "shares": [COLOURS[Domain.SOURCE], COLOURS[Domain.TARGET]],
    "gate": [ACCEPTED],
    "regret": [COLOURS[Domain.TARGET]],
}


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
    for number, decision_id in enumerate(target_ids[:20]):
        await api.reward(decision_id, float(number % 2))
    await idle_state(api, 4 * EPISODE + 20)


def share_of(ink: Any, pixels: Any) -> float:
    """The share of pixels that have nearly this colour."""
    return float((np.abs(pixels - np.array(to_rgb(ink))).max(axis=2) < 0.06).mean())


def test_chromium_draws_every_plot_without_a_network(full: Reported, tmp_path: Path):
    page = tmp_path / "report.html"
    page.write_text(full.page)
    boxes, height = layout(page, WIDTH)
    assert set(boxes) == {f"plot-{name}" for name in PLOTS}
    pixels = imread(screenshot(page, WIDTH, height, SCALE))[:, :, :3]
    for name in PLOTS:
        x, y, width, tall = boxes[f"plot-{name}"]
        assert width > 300, name
        assert tall > 100, name
        drawn = pixels[SCALE * y : SCALE * (y + tall), SCALE * x : SCALE * (x + width)]
        for ink in INKS[name]:
            assert share_of(ink, drawn) > 5e-5, (name, ink)
        assert share_of("white", drawn) > 0.3, name  # a plot, not a block
        assert (drawn.max(axis=2) < 0.4).mean() > 1e-3, name  # axes and labels


def test_the_page_needs_nothing_else(full: Reported):
    page = full.page
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    assert "@import" not in page
    assert "default-src 'none'" in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_says_the_verdict_and_its_figures(full: Reported):
    page, found = full.page, full.judgement
    word = found["verdict"]["word"]
    assert f"<strong>{word}</strong>" in page
    last = found["versions"][-1]
    for value in (*last["signs"].values(), last["bound"]["bound_total"]):
        text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
        assert f">{text}</td>" in page
    assert "encoder activated" in page


async def test_an_experiment_without_a_target_has_a_report_too(api: Api):
    await create(api)
    page = await page_of(api)
    assert "<strong>not judged</strong>" in page
    assert page.count("Nothing to show yet.") >= 5
    for i in range(EPISODE):
        answer = (await api.select(f"r-{i}")).json()
        await api.reward(answer["source"]["decision_id"], float(i % 2))
    await idle_state(api, EPISODE)
    page = await page_of(api)
    assert "<strong>not judged</strong>" in page
    assert '<figure id="plot-learning"><svg' in page


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
