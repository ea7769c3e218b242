"""Pages and plots: one style, readable in light and dark, lights with words, rewards in their unit."""

import re
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from model.rounds import Domain
from model.transfer.verdict import SIGN_LIMITS, Word
from service.pages.lights import Light
from service.pages.plot_style import COLOURS, legend_above, plot_style, svg
from service.pages.rendering import Table, environment
from service.records import RewardRange
from service.reporting import plots
from service.reporting.advice import LIGHTS, MEANINGS, NOT_JUDGED, next_step
from service.reporting.arms import ArmFigures, arms_lead, arms_table
from service.reporting.figures import (
    DIAGNOSTICS,
    SIGNS,
    diagnostics_table,
    limits_text,
    signs_table,
)

STYLE = (files("service.pages") / "templates" / "palette.css").read_text()
LIGHT, DARK = (dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", part)) for part in STYLE.split("@media screen", 1))  # fmt: skip
PERCENT = RewardRange(-50.0, 150.0)


def version(number: int, value: float = 0.6) -> dict[str, Any]:
    terms = dict.fromkeys(plots.TERMS, value)
    return {
        "encoder_version": number,
        "expected": {"reward": value, "lower": value - 0.2},
        "signs": dict.fromkeys(SIGNS, value),
        "diagnostics": terms,
    }


def part(macro: str, value: Any) -> str:
    """A part of a page."""
    template = f'{{% import "parts.html" as parts %}}{{{{ parts.{macro}(value) }}}}'
    return environment().from_string(template).render(value=value)


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4
        for each in to_rgb(colour)
    ]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_plots_and_pages_have_the_same_colours_in_light_and_dark():
    assert {name: LIGHT[name] for name in COLOURS} == COLOURS
    assert LIGHT.keys() == DARK.keys()


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_curves_stand_out_from_their_background(colours: dict[str, str]):
    for background in ("paper", "card"):
        for text in ("ink", "muted"):
            assert contrast(colours[text], colours[background]) >= 4.5, (text, background)
        for name in colours:
            if name.startswith("series") or name in ("source", "target"):
                assert contrast(colours[name], colours[background]) >= 3.0, name
    for light in Light:
        name = light.css_class
        assert contrast(colours[name], colours[f"{name}-paper"]) >= 4.5, name
        assert contrast(colours["ink"], colours[f"{name}-paper"]) >= 4.5, name


def test_a_light_has_a_symbol_and_a_word():
    assert len({light.symbol for light in Light}) == len(Light)
    page = part("light", Light.CAUTION)
    assert page == ('<span class="light caution"><i aria-hidden="true">!</i>caution</span>')


@pytest.mark.parametrize("count", [1, 2, 9])
def test_versions_are_whole_numbers_and_thresholds_are_drawn(count: int):
    versions = [version(number) for number in range(1, count + 1)]
    with plot_style():
        axes = Figure().subplots()
        plots.expected_by_version(versions)(axes)
    ticks = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert ticks
    assert all(tick == round(tick) for tick in ticks)
    assert axes.get_xlim() == (0.5, count + 0.5)
    assert {text.get_text() for text in axes.texts} == {"caution", "bad"}
    assert axes.get_ylim() == (0.0, 1.05)


def test_a_legend_covers_no_curve():
    with plot_style():
        figure = Figure(figsize=(4.2, 2.7), layout="constrained")
        axes = figure.subplots()
        for number in range(5):
            axes.plot([0, 1], [0, number], label=f"a rather long name {number}")
        legend_above(axes)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
        assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_a_drawing_has_a_title_and_the_pages_colours():
    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=COLOURS["target"], label="<b>")
        legend_above(axes)

    found = svg("one", "Rewards & <more>", draw)
    assert '<title id="one-title">Rewards &amp; &lt;more&gt;</title>' in found
    assert 'role="img" aria-labelledby="one-title"' in found
    assert "var(--target)" in found
    assert COLOURS["target"] not in found
    assert "<b>" not in found
    assert found == svg("one", "Rewards & <more>", draw)


def test_every_sign_has_a_threshold_a_meaning_and_a_light():
    assert SIGNS.keys() == SIGN_LIMITS.keys()
    table = signs_table({**dict.fromkeys(SIGNS, 0.75), "held_out_rounds": 78, "target_contexts": 9})
    lights = [row[2] for row in table.rows]
    assert lights == [
        *(Light.GOOD, Light.CAUTION, Light.CAUTION, Light.BAD, Light.BAD),
        *(Light.CAUTION, Light.CAUTION, Light.GOOD, Light.CAUTION),
    ]
    assert limits_text("far_share") == "good up to 50%"
    assert limits_text("expected_reward") == "good from 0.70, bad below 0.30"
    assert limits_text("target_rank") == "bad below 1.50"
    assert limits_text("held_out_rounds") == "good from 64"


def test_every_verdict_has_a_light_a_meaning_and_a_next_step():
    for word in (*Word, NOT_JUDGED):
        assert {word} <= LIGHTS.keys() & MEANINGS.keys()
        assert next_step(word, 1, 1)
    assert "gate" in next_step(NOT_JUDGED, 0, 3)
    assert "64" in next_step(NOT_JUDGED, 0, 0)


def test_rewards_are_in_the_unit_of_the_outcomes():
    terms = dict.fromkeys(DIAGNOSTICS, 0.25)
    table = diagnostics_table(terms, PERCENT)
    shown = {row[0]: row[1] for row in table.rows}
    assert shown["Regression error"] == "50"
    assert shown["Proxy A-distance"] == "0.25"
    with plot_style():
        axes = Figure().subplots()
        plots.terms_by_version([version(1, 0.25)], PERCENT)(axes)
        assert axes.lines[0].get_ydata()[0] == 50.0  # type: ignore[index]
        axes = Figure().subplots()
        plots.learning_curve({Domain.SOURCE: np.full(80, 0.5)}, PERCENT)(axes)
    assert set(axes.lines[0].get_ydata()) == {50.0}  # type: ignore[arg-type]


def figures(recommended: list[int]) -> ArmFigures:
    count = len(recommended)
    earned = np.full(count, np.nan)
    earned[0] = 12.5
    return ArmFigures(np.arange(count), earned, 12.5, np.array(recommended), np.full(count, -3.25))


def test_the_most_recommended_arm_comes_first():
    table = arms_table(figures([10, 30, 0]), ["low", "<mid>", "high"])
    assert [row[0] for row in table.rows] == ["<mid>", "low", "high"]
    assert [row[1].split(" <")[0] for row in table.rows] == ["30 (75%)", "10 (25%)", "0 (0%)"]
    assert [row[2] for row in table.rows] == 3 * ["−3.25"]
    assert [row[4] for row in table.rows] == ["–", "12.5", "–"]
    assert "40 target contexts" in arms_lead(figures([10, 30, 0]), 3)
    many = arms_table(figures(list(range(30))), [str(index) for index in range(30)])
    assert len(many.rows) == 20
    assert "10 arms" in arms_lead(figures(list(range(30))), 30)
    assert "upload" in arms_lead(figures([0, 0]), 2)


def test_a_table_names_its_columns_and_rows():
    table = Table(("arm", "count", "why"), [("<low>", "3", "so")], {1}, {2})
    page = part("table", table)
    assert '<th role="columnheader" scope="col" class="number">count</th>' in page
    assert '<th role="rowheader" scope="row">&lt;low&gt;</th>' in page
    assert '<td role="cell" data-label="count" class="number">3</td>' in page
