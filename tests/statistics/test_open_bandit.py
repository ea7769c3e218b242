"""The Open Bandit Dataset's sample: our figures equal a computation that shares no code with ours.

The bts policy's probabilities by position and item are the mean propensities of its own log. The
sample cannot be shipped: the tests run where DABAND_DATA names it. `tests/unit/service/test_evaluating.py`
does the same on a hand-made file.
"""

import csv
import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from model.ope.estimates import EvaluationOptions
from service.evaluating.candidates import CandidateSpec
from service.evaluating.file_log import FileOptions, evaluate_file
from service.formats.files import reading, write_log

ROOT = os.environ.get("DABAND_DATA")
pytestmark = pytest.mark.skipif(
    not ROOT, reason="DABAND_DATA is not set: the real data sets cannot be shipped"
)
FOLDER = Path(ROOT or "not set") / "obd"
Table = dict[str, dict[str, float]]


def rows(name: str) -> list[dict[str, str]]:
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def bts_table(campaign: str) -> Table:
    """Probabilities by position: the mean propensity of each item's impressions, scaled to 1."""
    received: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(f"bts_{campaign}"):
        received[row["position"]][row["item_id"]].append(float(row["propensity_score"]))
    table = {}
    for position, items in received.items():
        means = {item: sum(each) / len(each) for item, each in items.items()}
        total = sum(means.values())
        table[position] = {item: mean / total for item, mean in means.items()}
    return table


def computed(campaign: str, table: Table) -> dict[str, float]:
    """IPS, SNIPS, effective sample size and largest weight in plain Python."""
    weights, rewards = [], []
    for row in rows(f"random_{campaign}"):
        probability = table[row["position"]].get(row["item_id"], 0.0)
        weights.append(probability / float(row["propensity_score"]))
        rewards.append(float(row["click"]))
    worth = sum(w * r for w, r in zip(weights, rewards, strict=True))
    return {
        "ips": worth / len(weights),
        "snips": worth / sum(weights),
        "effective": sum(weights) ** 2 / sum(w * w for w in weights),
        "largest": max(weights),
    }


def evaluated(campaign: str, table: Table, tmp_path: Path) -> dict[str, Any]:
    policy = tmp_path / "bts.json"
    policy.write_text(json.dumps({"format": "daband-policy-table", "rows": table}))
    items = {"men": 34, "women": 46}[campaign]
    result = evaluate_file(
        FOLDER / f"random_{campaign}.csv.gz",
        [CandidateSpec(kind="file", path=str(policy)), CandidateSpec(kind="uniform")],
        EvaluationOptions(max_weight=float(items)),
        FileOptions(),
    )
    assert result["rounds"] == 10_000
    return {each["name"].partition(":")[0]: each for each in result["candidates"]}


@pytest.mark.parametrize("campaign", ["men", "women"])
def test_bts_from_random_logs_equals_an_independent_computation(campaign: str, tmp_path: Path):
    table = bts_table(campaign)
    found = evaluated(campaign, table, tmp_path)
    right = computed(campaign, table)
    bts = found["file"]
    for name in ("ips", "snips"):
        assert bts["estimates"][name]["value"] == pytest.approx(right[name], abs=1e-12)
    assert bts["support"]["effective_rounds"] == pytest.approx(right["effective"], rel=1e-9)
    assert bts["support"]["max_weight"] == pytest.approx(right["largest"], rel=1e-9)
    # The uniform policy is the logger itself: every estimate is near the mean click rate.
    clicks = [float(row["click"]) for row in rows(f"random_{campaign}")]
    mean = sum(clicks) / len(clicks)
    assert found["uniform"]["estimates"]["ips"]["value"] == pytest.approx(mean, abs=1e-12)
    # What bts earned by itself, in its own log, is a plausible value of it.
    earned = [float(row["click"]) for row in rows(f"bts_{campaign}")]
    low, high = bts["estimates"]["dr"]["interval"]
    assert low <= sum(earned) / len(earned) <= high


@pytest.mark.parametrize("name", ["random_men", "bts_women"])
def test_the_real_files_come_back_as_they_were(name: str, tmp_path: Path):
    with reading(FOLDER / f"{name}.csv.gz") as reader:
        assert write_log(tmp_path / "again.csv", reader.header, reader) == 10_000
    with gzip.open(FOLDER / f"{name}.csv.gz") as file:
        assert (tmp_path / "again.csv").read_bytes() == file.read()
