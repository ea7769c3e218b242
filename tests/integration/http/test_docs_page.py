import re

import pytest

from tests.support.api import Api

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
