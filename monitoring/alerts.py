"""Prometheus's rules as plain values, for the documentation and the tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "prometheus"
ALERTS, RECORDINGS = FOLDER / "alert.rules.yml", FOLDER / "recording.rules.yml"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `lasting` is how long the expression must hold before it fires."""

    name: str
    expr: str
    lasting: str
    severity: str


def alerts() -> list[Alert]:
    """All alerts in their order."""
    return [
        Alert(
            each["alert"], _plain(each["expr"]), each.get("for", "0m"), each["labels"]["severity"]
        )
        for each in _rules(ALERTS)
    ]


def recordings() -> dict[str, str]:
    """The expressions of all recording rules by name."""
    return {each["record"]: _plain(each["expr"]) for each in _rules(RECORDINGS)}


def alerts_table() -> str:
    """All alerts as a table of the documentation."""
    rows = ["| alert | severity | fires when this holds | for |", "|---|---|---|---|"]
    for alert in alerts():
        expr = alert.expr.replace("|", "\\|")
        link = f"[{alert.name}](#{alert.name.lower()})"
        rows.append(f"| {link} | {alert.severity} | `{expr}` | {alert.lasting} |")
    return "\n".join(rows)


def _rules(path: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _plain(expr: str) -> str:
    return " ".join(expr.split())
