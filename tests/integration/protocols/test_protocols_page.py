"""The examples of docs/protocols.md run as they stand."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openfeature import api as openfeature

from tests.integration.protocols.conftest import Guarded

PAGE = Path(__file__).parents[3] / "docs" / "protocols.md"


def run(guarded: Guarded, number: int) -> dict[str, Any]:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[number]
    for written, real in (
        ("daband_…", guarded.owner),
        ('"http://127.0.0.1:8000"', f'"{guarded.url}", api_key="{guarded.owner}"'),
        ("127.0.0.1:8000", urlsplit(guarded.url).netloc),
        ('"first"', '"doses"'),
        (
            "RewardingProvider(rewarding)",
            "RewardingProvider(rewarding, headers_factory=lambda: "
            f"{{'Authorization': 'Bearer {guarded.owner}'}})",
        ),
    ):
        code = code.replace(written, real)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_model_is_asked(guarded: Guarded):
    assert len(run(guarded, 0)["result"].as_numpy("arm")) == 2


def test_a_tracked_value_becomes_a_reward(guarded: Guarded):
    with guarded.client() as client:
        before = client.state("doses").head_offset
        names = run(guarded, 1)
        assert client.state("doses").head_offset == before + 2
    assert names["arm"] in ("low", "mid", "high")
    assert names["rewarding"].state("doses").head_offset == before + 2
    names["rewarding"].close()
    openfeature.clear_providers()
