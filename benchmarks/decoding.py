"""What decoding a context costs by each way that could be taken, and which of them are strict.

`python -m benchmarks.decoding [--repeats 2000]`: the body of a round with 32 and with 784 numbers, to a checked
float32 array. Microseconds of CPU, the least of several runs. orjson is measured where it is installed.
"""

import argparse
import importlib
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from pydantic import BaseModel

from model.rounds import Floats

SIZES = (32, 784)
RUNS = 5


class _Side(msgspec.Struct):
    context: list[float]


class _Round(msgspec.Struct):
    source: _Side


class _PydanticSide(BaseModel, strict=True):
    context: list[float]


class _PydanticRound(BaseModel, strict=True):
    source: _PydanticSide


_typed = msgspec.json.Decoder(_Round).decode
_untyped = msgspec.json.Decoder().decode


def ways() -> dict[str, Callable[[bytes], Floats]]:
    """The ways by name."""
    found: dict[str, Callable[[bytes], Floats]] = {
        "json.loads + numpy": lambda body: _array(json.loads(body)["source"]["context"]),
        "pydantic, strict": lambda body: _array(
            _PydanticRound.model_validate_json(body).source.context
        ),
        "msgspec without types + numpy": lambda body: _array(_untyped(body)["source"]["context"]),
        "msgspec with types (taken)": lambda body: _array(_typed(body).source.context),
    }
    try:
        loads = importlib.import_module("orjson").loads
    except ImportError:
        return found
    return {**found, "orjson + numpy": lambda body: _array(loads(body)["source"]["context"])}


def is_strict(way: Callable[[bytes], Floats]) -> bool:
    """Whether a number in quotes and a boolean are refused."""
    return all(_refuses(way, wrong) for wrong in ("2", True))


def _refuses(way: Callable[[bytes], Floats], wrong: object) -> bool:
    try:
        way(json.dumps({"source": {"context": [wrong, 1.0]}}).encode())
    except (ValueError, TypeError):
        return True
    return False


def _array(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float32)
    if not math.isfinite(float(np.vdot(array, array))):
        raise ValueError("not finite")
    return array


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    options = parser.parse_args(arguments)
    bodies = [_body(size) for size in SIZES]
    print("| way | strict | d = 32, µs | d = 784, µs |\n|---|---|---|---|")
    for name, way in ways().items():
        costs = [cpu_us(partial(way, body), options.repeats) for body in bodies]
        print(f"| {name} | {'yes' if is_strict(way) else 'no'} | {costs[0]:.1f} | {costs[1]:.1f} |")
    raw = [np.zeros(size, dtype=np.float32).tobytes() for size in SIZES]
    costs = [cpu_us(partial(_from_bytes, body), options.repeats) for body in raw]
    print(f"| float32 body (taken) | yes | {costs[0]:.1f} | {costs[1]:.1f} |")


def _from_bytes(body: bytes) -> Floats:
    return _array(np.frombuffer(body, "<f4"))


def cpu_us(work: Callable[[], object], repeats: int) -> float:
    """Microseconds of one call, the least of some runs."""

    def run() -> float:
        started = time.process_time()
        for _ in range(repeats):
            work()
        return 1e6 * (time.process_time() - started) / repeats

    return min(run() for _ in range(RUNS))


def _body(size: int) -> bytes:
    context = np.random.default_rng(0).standard_normal(size).astype(np.float32).tolist()
    return json.dumps({"source": {"context": context}}).encode()


if __name__ == "__main__":
    main()
