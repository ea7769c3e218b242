"""The page `/` says what runs here and whether it is ready, and tells nothing of anybody."""

import base64
import hashlib
import re

from tests.support.api import Api


async def test_the_page_says_that_the_service_is_ready(api: Api):
    page = await api.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<strong>Ready.</strong>" in page.text
    assert "doses" not in page.text  # an experiment of this app


async def test_every_link_of_the_page_is_answered(api: Api):
    links = re.findall(r'href="([^"]*)"', (await api.http.get("/")).text)
    assert {"/docs", "/openapi.json", "/metrics", "/experiments"} <= set(links)
    for link in links:
        assert (await api.http.get(link)).is_success, link


async def test_the_page_allows_its_own_style_alone(api: Api):
    page = await api.http.get("/")
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page.text
    assert "style=" not in page.text


async def test_the_page_says_what_keeps_the_service_from_being_ready(api: Api):
    api.services.readiness.fail("policies")
    page = await api.http.get("/")
    assert page.status_code == 200
    assert "<strong>Not ready.</strong> A background task has died." in page.text
