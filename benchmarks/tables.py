"""What a row of a table costs beside a bare vector of the same width, in the whole request.

`python -m benchmarks.tables [--requests 2000]`: selects of a relaxed experiment on SQLite through the app, without
sockets, as JSON. Rows have 12 columns like those of the warfarin data, with values missing. Rows and vectors take
turns in one run; the figure is the ratio of the least CPU times.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from service.columns.resolving import resolved
from service.columns.rows import RowPlan
from service.columns.schema import DeclaredColumn
from tests.support.api import Api, Exchange, running_api

TURNS = 20
YES_NO = ("diabetes", "heart_failure", "valve", "aspirin", "amiodarone", "smoker")
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "numeric", "missing": True, "fill": 60},
    {"name": "height", "type": "numeric", "missing": True, "fill": 168},
    {"name": "weight", "type": "numeric", "missing": True, "fill": 78},
    {"name": "race", "type": "categorical", "values": ["White", "Asian", "Black"], "missing": True},
    {"name": "cyp2c9", "type": "categorical", "missing": True}
    | {"values": ["*1/*1", "*1/*2", "*1/*3", "*2/*2", "*2/*3", "*3/*3"]},
    {"name": "vkorc1", "type": "ordinal", "values": ["G/G", "A/G", "A/A"], "missing": True},
    *({"name": name, "type": "boolean", "missing": True} for name in YES_NO),
]


def rows(count: int) -> list[dict[str, Any]]:
    """Rows with about one value in six missing."""
    rng = np.random.default_rng(0)
    values: dict[str, Callable[[], Any]] = {
        "age": lambda: int(rng.integers(20, 90)),
        "height": lambda: round(rng.normal(168, 10), 1),
        "weight": lambda: round(rng.normal(78, 20), 1),
        "race": lambda: str(rng.choice(["White", "Asian", "Black", "Other"])),
        "cyp2c9": lambda: str(rng.choice(["*1/*1", "*1/*2", "*1/*5"])),
        "vkorc1": lambda: str(rng.choice(["G/G", "A/G", "A/A"])),
        **dict.fromkeys(YES_NO, lambda: bool(rng.integers(2))),
    }
    return [
        {name: None if rng.random() < 0.16 else make() for name, make in values.items()}
        for _ in range(count)
    ]


def bodies(contexts: list[Any]) -> list[bytes]:
    """A request for each context."""
    return [
        json.dumps({"experiment": "doses", "source": {"context": each}}).encode()
        for each in contexts
    ]


async def spent(api: Api, requests: list[bytes]) -> float:
    """CPU seconds of these requests on the fast path, from their bytes to those of their answers."""
    fast_path, state = api.app.fast_path, {"services": api.services}
    started = time.process_time()
    for content in requests:
        length = b"%d" % len(content)
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        request = fast_path.find(b"POST", b"/select", headers, state)
        assert request is not None
        exchange = Exchange()
        fast_path.take(request, content, exchange)
        status, _, answer = await exchange.answered
        assert status == 200, answer
    return time.process_time() - started


async def measured(count: int) -> tuple[float, float]:
    """Least CPU microseconds of a request with a vector and of one with a row."""
    given = rows(count // TURNS)
    plan = RowPlan(resolved(msgspec.convert(COLUMNS, list[DeclaredColumn])))
    vectors = [[round(x, 1) for x in plan.row(json.dumps(row).encode()).tolist()] for row in given]
    with tempfile.TemporaryDirectory() as folder:
        async with running_api(f"sqlite:///{Path(folder) / 'service.db'}") as api:
            declared = {"arms": ["low", "mid", "high"], "method": "linucb", "durability": "relaxed"}
            context = {"kind": "table", "columns": COLUMNS}
            body = {"name": "doses", "context": context, **declared}
            answer = await api.http.post("/experiments", json=body)
            assert answer.status_code == 201, answer.text
            turns = [
                (await spent(api, bodies(list(vectors))), await spent(api, bodies(list(given))))
                for _ in range(TURNS)
            ]
    vector, row = np.min(turns, axis=0) / len(given) * 1e6
    return float(vector), float(row)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000, help="of each kind")
    vector, row = asyncio.run(measured(parser.parse_args().requests))
    print(f"vector {vector:.0f} µs, row {row:.0f} µs, row ÷ vector {row / vector:.2f}")


if __name__ == "__main__":
    main()
