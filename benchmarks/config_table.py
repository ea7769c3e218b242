"""Prints the configuration's fields as the Markdown table that docs/algorithm.md shows."""

import dataclasses

from model.config import BanditConfig


def config_table() -> str:
    """One row a field: name, symbol, default, unit, meaning."""
    rows = ["| field | symbol | default | unit | meaning |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(BanditConfig):
        is_required = field.default is dataclasses.MISSING
        default = "required" if is_required else _shown(field.default)
        notes = field.metadata
        rows.append(
            f"| `{field.name}` | {notes['symbol']} | {default} | {notes['unit']} | {notes['meaning']} |"
        )
    return "\n".join(rows)


def _shown(value: object) -> str:
    return f"`{list(value)}`" if isinstance(value, tuple) else f"`{value}`"


if __name__ == "__main__":
    print(config_table())
