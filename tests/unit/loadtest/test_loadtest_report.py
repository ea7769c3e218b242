"""What a report says, and what the command makes of it."""

import json
from pathlib import Path

import pytest
from PIL import Image

from loadtest.__main__ import EXIT_CODES, parser
from loadtest.bench import Bench
from loadtest.checks import at_least, at_most
from loadtest.profiles import PROFILES
from loadtest.report import Verdict, facts, markdown, write
from loadtest.sampling import MEBIBYTE, Sample
from service.http.concurrency_limit import LoadLimits
from tests.support.loadtest import simulated_bench

MET = at_most("errors", 0, 0, "{:.0f}")
MISSED = at_least("goodput at twice the knee", 0.5, 0.9)


@pytest.fixture
def bench() -> Bench:
    made = simulated_bench(LoadLimits(max_in_flight=64, target_seconds=0.1))
    made.started = 0.0
    made.play_on([("calm", 100, 4), ("too much", 1000, 4)])
    made.sampler.samples["service"] = [
        Sample(moment, 0.8 * moment, (300 + moment) * MEBIBYTE) for moment in range(9)
    ]
    made.events.append((5.0, "Redis was restarted"))
    return made


@pytest.mark.parametrize(
    ("verdict", "word", "code"),
    [
        (Verdict([MET], []), "passed", 0),
        (Verdict([MET, MISSED], []), "FAILED", 1),
        (Verdict([MET], ["the generator was late"]), "INVALID", 2),
        (Verdict([MISSED], ["the generator was late"]), "INVALID", 2),
    ],
)
def test_an_invalid_run_shows_nothing_good_or_bad(verdict: Verdict, word: str, code: int):
    assert (verdict.word, EXIT_CODES[verdict.word]) == (word, code)


def test_the_report_says_what_was_offered_and_what_became_of_it(bench: Bench):
    text = markdown(facts("overload", bench, Verdict([MET, MISSED], [])))
    assert text.startswith("# Load test `overload`: FAILED")
    assert "| goodput at twice the knee | 0.50 | ≥ 0.90 | **missed** |" in text
    calm, too_much = (line for line in text.splitlines() if line.startswith(("| calm", "| too")))
    due = bench.stages[0].whole.due
    assert f"| calm | 4 | {due / 4:.0f} | {due / 4:.0f} | {due} × 200 |" in calm
    assert " × 503 |" in too_much
    assert "service 0.80" in calm
    assert "service 304" in calm
    assert "- 5 s: Redis was restarted" in text


def test_an_invalid_run_says_why(bench: Bench):
    text = markdown(facts("select", bench, Verdict([], ["at 100/s: a generator took 99%"])))
    assert "# Load test `select`: INVALID" in text
    assert "- invalid: at 100/s: a generator took 99%" in text


def test_the_report_is_written_for_people_and_for_programs(bench: Bench, tmp_path: Path):
    written = write(tmp_path / "out", "overload", bench, Verdict([MET], []))
    result = json.loads((tmp_path / "out" / "report.json").read_text())
    stages = result["stages"]
    assert "report.png" in written.read_text()
    assert [stage["requests"] for stage in stages] == [each.whole.due for each in bench.stages]
    assert all(sum(stage["outcomes"].values()) == stage["requests"] for stage in stages)
    assert {"p50", "p90", "p99", "p99.9", "max"} == stages[0]["latency_ms"].keys()
    with Image.open(tmp_path / "out" / "report.png") as picture:
        assert len(picture.getcolors(maxcolors=1 << 20) or []) > 50


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_a_command(profile: str):
    assert parser().parse_args([profile, "--seconds", "3"]).profile == profile
