"""`make docs`: the parts of the documentation that are the code's own words."""

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path

from daband_client import Client
from docs.marked import with_part
from model.config import BanditConfig
from monitoring.alerts import alerts_table
from monitoring.dashboards import panels_table
from service.app import create_app
from service.errors import problem_types
from service.formats import jsonl
from service.metrics import Metrics
from service.settings import Settings, described

FOLDER = Path(__file__).parent


def main() -> None:
    """Write the OpenAPI description and fill the marked parts of the pages."""
    (FOLDER / "openapi.json").write_text(openapi())
    (FOLDER / "log.schema.json").write_text(log_schema())
    for page in FOLDER.glob("*.md"):
        page.write_text(filled(page.read_text()))


def openapi() -> str:
    """The OpenAPI description as it is stored: that of a service with keys."""
    app = create_app(Settings(auth="required"))
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


def log_schema() -> str:
    """The JSON Schema of a log's lines as it is stored."""
    return json.dumps(jsonl.schema(), indent=1, ensure_ascii=False) + "\n"


def filled(text: str) -> str:
    """A page with its marked parts made anew."""
    for name, make in PARTS.items():
        if f"<!-- {name} -->" in text:
            text = with_part(text, name, make())
    return text


def metrics_table() -> str:
    """Every metric with its labels."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.meaning} |"
        for each in Metrics().declared
    ]
    return "\n".join(("| metric | kind | labels | meaning |", "|---|---|---|---|", *rows))


def problems_table() -> str:
    """Every problem with its status."""
    rows = [
        f"| `{slug}` | {kind.status} | {kind.default_detail()} |"
        for slug, kind in problem_types().items()
    ]
    return "\n".join(("| slug | status | meaning |", "|---|---|---|", *rows))


def settings_table() -> str:
    """Every setting with its default."""
    rows = [f"| `{name}` | `{default}` | {meaning} |" for name, default, meaning in described()]
    return "\n".join(("| variable | default | meaning |", "|---|---|---|", *rows))


def configuration_table() -> str:
    """Every field of an experiment's configuration."""
    rows = ["| field | symbol | default | unit | meaning |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(BanditConfig):
        is_required = field.default is dataclasses.MISSING
        default = "required" if is_required else f"`{_plain(field.default)}`"
        says = field.metadata
        rows.append(
            f"| `{field.name}` | {says['symbol']} | {default} | {says['unit']} | {says['meaning']} |"
        )
    return "\n".join(rows)


def methods_table() -> str:
    """Every method of the client that is a call of the API."""
    rows = ["| method | what it does |", "|---|---|"]
    for name, method in vars(Client).items():
        if (
            not name.startswith("_")
            and inspect.isfunction(method)
            and name not in ("close", "send")
        ):
            says = (inspect.getdoc(method) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{name}({_arguments(method)})` | {says.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def _arguments(method: Callable[..., object]) -> str:
    """The arguments without their types; those that may be left out end in `=…`."""
    found = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
    return ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"{each.name}=…" for each in found
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


PARTS = {
    "settings": settings_table,
    "metrics": metrics_table,
    "panels": panels_table,
    "alerts": alerts_table,
    "problems": problems_table,
    "configuration": configuration_table,
    "methods": methods_table,
}

if __name__ == "__main__":
    main()
