"""Rules and dashboards are valid, name metrics that exist, and are explained."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring import dashboards
from monitoring.alerts import FOLDER, alerts, recordings
from monitoring.panels import Board, Query
from service.metrics import Metrics
from tests.support.processes.prometheus import promtool

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "monitoring" / "grafana"
TESTS = yaml.safe_load((FOLDER / "alert.tests.yml").read_text())["tests"]
QUERIES = [
    query for board in dashboards.BOARDS for panel in board.panels for query in panel.queries
]
NAME = re.compile(r"\b(?:[a-z_]+:)?daband[a-z0-9_:]*")
BOARD = pytest.mark.parametrize("board", dashboards.BOARDS, ids=lambda board: board.uid)


def known_names() -> set[str]:
    """Every series name that a query may use."""
    names = {"up", *recordings()}
    for metric in Metrics().declared:
        suffixes = ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)
        names |= {metric.name + suffix for suffix in suffixes}
    return names


def test_promtool_accepts_configuration_and_rules():
    promtool("check", "config", FOLDER / "prometheus.yml")
    promtool("check", "rules", *sorted(FOLDER.glob("*.rules.yml")))


def test_promtool_sees_every_alert_fire_when_it_should():
    promtool("test", "rules", FOLDER / "alert.tests.yml")


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_every_alert_is_seen_to_fire_and_not_to_fire(alert: Any):
    cases = [case for test in TESTS for case in test["alert_rule_test"]]
    outcomes = {bool(case.get("exp_alerts")) for case in cases if case["alertname"] == alert.name}
    assert outcomes == {True, False}


def test_alerts_and_runbooks_are_the_same():
    text = (ROOT / "docs" / "operations.md").read_text()
    sections = re.findall(r"^### (Daband\w+)$", text, re.MULTILINE)
    assert sections == [alert.name for alert in alerts()]


@pytest.mark.parametrize(
    "expr",
    [*recordings().values(), *(a.expr for a in alerts()), *(q.expr for q in QUERIES)],
)
def test_every_expression_names_metrics_that_exist(expr: str):
    names = set(NAME.findall(re.sub(r'"[^"]*"', "", expr))) | set(re.findall(r"\bup\b", expr))
    assert names
    assert names <= known_names()


def test_every_query_is_promql(tmp_path: Path):
    rules = [{"record": f"query:{n}", "expr": plain(query)} for n, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", file)


def plain(query: Query) -> str:
    """The query as Grafana sends it."""
    return query.expr.replace("$__rate_interval", "1m").replace("$experiment", ".*")


@BOARD
def test_the_stored_dashboards_are_those_of_the_code(board: Board):
    stored = dashboards.file_of(board).read_text()
    assert stored == dashboards.as_json(board), "run `make dashboards`"


def test_no_other_dashboard_is_stored():
    stored = set((GRAFANA / "dashboards").iterdir())
    assert stored == {dashboards.file_of(board) for board in dashboards.BOARDS}


@BOARD
def test_every_panel_has_its_queries_a_unit_and_a_place(board: Board):
    made = json.loads(dashboards.as_json(board))
    places = [tuple(panel["gridPos"].values()) for panel in made["panels"]]
    assert len(set(places)) == len(board.panels)
    for panel, wanted in zip(made["panels"], board.panels, strict=True):
        assert panel["title"] == wanted.title
        assert panel["fieldConfig"]["defaults"]["unit"] == wanted.unit
        assert [each["expr"] for each in panel["targets"]] == [q.expr for q in wanted.queries]
        assert len({each["refId"] for each in panel["targets"]}) == len(wanted.queries)


@BOARD
def test_no_panel_leaves_the_grid_or_covers_another(board: Board):
    places = [each["gridPos"] for each in json.loads(dashboards.as_json(board))["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert {x for x, _ in cells} == set(range(24))
    assert len(set(cells)) == len(cells)


@BOARD
def test_every_panel_asks_the_provisioned_data_source(board: Board):
    provisioned = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    (source,) = provisioned["datasources"]
    made = json.loads(dashboards.as_json(board))
    for panel in made["panels"]:
        assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}


def test_every_metric_is_on_a_dashboard():
    shown = " ".join((*recordings().values(), *(query.expr for query in QUERIES)))
    for metric in Metrics().declared:
        assert metric.name in shown, metric.name
