import re
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.experiment_spec import CONFIG_FIELDS
from service.settings import Settings
from tests.support.api import Api, running_api
from tests.support.storage import sqlite_url

MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "png": "image/png"}


async def test_all_parts_of_the_docs_page_come_from_the_service(api: Api):
    page = await api.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    parts = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert {part.rpartition(".")[2] for part in parts} == MEDIA_TYPES.keys()
    for part in parts:
        assert part.startswith("/")
        answer = await api.http.get(part)
        media_type = answer.headers["content-type"].partition(";")[0]
        assert (answer.status_code, media_type) == (200, MEDIA_TYPES[part.rpartition(".")[2]])
        assert answer.content
    assert "https://" not in page.text
    assert "url: '/openapi.json'" in page.text


@pytest.mark.parametrize("path", ["/docs/assets/no-such-file.js", "/docs/assets/%2e%2e/main.py"])
async def test_nothing_but_the_parts_is_there(api: Api, path: str):
    answer = await api.http.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def example_of(path: str) -> Any:
    """What "Try it out" offers."""
    described = create_app(Settings()).openapi()["paths"][path]["post"]
    return described["requestBody"]["content"]["application/json"]["example"]


async def test_the_examples_can_be_sent_as_they_are(tmp_path: Path):
    async with running_api(sqlite_url(tmp_path / "new" / "daband.db")) as fresh:
        for path in ("/experiments", "/select", "/select/batch", "/target/select"):
            answer = await fresh.http.post(path, json=example_of(path))
            assert answer.is_success, (path, answer.text)
        selected = await fresh.http.post("/select", json=example_of("/select"))
        decision = {"decision_id": selected.json()["source"]["decision_id"]}
        rewarded = await fresh.http.post("/reward", json=example_of("/reward") | decision)
        assert rewarded.is_success


def test_the_configuration_is_described_field_by_field():
    schemas = create_app(Settings()).openapi()["components"]["schemas"]
    config = schemas["ExperimentRequest"]["properties"]["config"]
    assert set(config["properties"]) == CONFIG_FIELDS
    assert config["additionalProperties"] is False
    assert config["properties"]["epsilon"] == {
        "description": "share of uniform exploration",
        "type": "number",
        "minimum": 0,
        "maximum": 1,
    }
    assert all({"type", "description"} <= set(each) for each in config["properties"].values())


@pytest.mark.parametrize(("auth", "has_keys"), [("off", False), ("required", True)])
def test_a_padlock_is_where_a_key_is_needed(auth: Any, has_keys: bool):
    made = create_app(Settings(auth=auth)).openapi()
    assert ("security" in made["paths"]["/select"]["post"]) == has_keys
    assert ("securitySchemes" in made["components"]) == has_keys
    assert "security" not in made["paths"]["/healthz"]["get"]
