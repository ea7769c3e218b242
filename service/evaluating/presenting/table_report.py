"""An evaluation as a table in the terminal."""

from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from service.evaluating.presenting.figures import in_unit, interval, number, overlap_text

TITLES = ("candidate", "value", "interval", "snips", "ips", "effective n", "max weight", "overlap")


def print_result(result: dict[str, Any]) -> None:
    """Print the table of a result with its summary and notes."""
    result = in_unit(result)
    table = Table()
    for index, title in enumerate(TITLES):
        table.add_column(title, justify="left" if index == 0 else "right", overflow="fold")
    for each in result["candidates"]:
        table.add_row(*_cells(each))
    Console().print(Group(Text(_summary(result)), table, *map(Text, _notes(result))))


def _cells(candidate: dict[str, Any]) -> tuple[str, ...]:
    support, found = candidate["support"], candidate["estimates"]
    return (
        candidate["name"],
        number(candidate["value"]),
        interval(found["dr"]["interval"]),
        number(found["snips"]["value"]),
        number(found["ips"]["value"]),
        f"{support['effective_rounds']:,.0f}",
        f"{support['max_weight']:.1f}",
        overlap_text(support["overlap"]),
    )


def _summary(result: dict[str, Any]) -> str:
    logged = result["logged"]
    return (
        f"{result['rounds']:,} rounds, {result['domain']}; the log itself earned"
        f" {number(logged['value'])} {interval(logged['interval'])};"
        f" values by DR, intervals by Cressie-Read at {result['confidence']:.0%}"
    )


def _notes(result: dict[str, Any]) -> list[str]:
    notes = [
        f"! {each['name']}: {text}" for each in result["candidates"] for text in each["warnings"]
    ]
    targets = ((each["name"], each.get("target")) for each in result["candidates"])
    notes += [f"  {name} in the target: {_target(found)}" for name, found in targets if found]
    if unit := result.get("reward_range"):
        notes.append(f"  rewards lie between {unit[0]:g} and {unit[1]:g}")
    if result.get("bad_lines"):
        notes.append(f"! {result['bad_lines']:,} bad lines were skipped; the first:")
        notes += [f"    line {bad['line']}: {bad['reason']}" for bad in result["first_bad_lines"]]
    return notes


def _target(target: dict[str, Any]) -> str:
    if not target["is_identifiable"]:
        return f"not identifiable: {target['reason']}"
    return f"{number(target['value'])} {interval(target['interval'])}"
