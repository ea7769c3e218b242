"""The whole service on a GPU relative to the same service on a CPU, measured in one run.

    python -m benchmarks.serving_devices [--device cuda] [--json FILE] [--quick]

Two services on SQLite, both on one core and loaded in turn, the load on another, all cases interleaved round
by round; medians. Vectors of 784 numbers go through an MLP 784 → 256 → 64, images of 3×28×28 through the
convolutions of `daband`: as single selects with binary bodies, 64 callers at once, and as 1,000 contexts in
one request to the target policy, which answers a table.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from benchmarks.load import http_request
from benchmarks.serving import ARMS, BYTES, CALLERS, Case, case_rows, parsed, ratio
from benchmarks.serving_servers import Server, service

BATCH = 1000
TABLE = "application/x-npy"
LARGE = str(1 << 24)  # bytes of a thousand images
EXPERIMENTS: Mapping[str, dict[str, Any]] = {
    "vectors": {
        "context": {"kind": "shared", "shape": [784]},
        "method": "nlinucb",
        "config": {"hidden_sizes": [256], "latent_size": 64},
    },
    "images": {"context": {"kind": "shared", "shape": [3, 28, 28]}, "method": "daband"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="what is set beside the CPU")
    options = parsed(parser, arguments)
    figures = measured(options.device, options.seconds, options.rounds)
    print(f"{figures['machine']}\n\n{table(figures)}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


def measured(device: str, seconds: float, rounds: int) -> dict[str, Any]:
    """The figures of all cases, and the device's ÷ the CPU's."""
    with tempfile.TemporaryDirectory() as name, _services(Path(name), device) as (cpu, other):
        pairs = list(zip(_cases(cpu, "on the CPU"), _cases(other, f"on {device}"), strict=True))
        for _ in range(rounds):
            for case in (case for pair in pairs for case in pair):
                case.measure(seconds, Path(name))
    return {
        "machine": _machine(device),
        "cases": [case.row() for pair in pairs for case in pair],
        "ratios": [{"case": ours.name, **ratio(ours, base)} for base, ours in pairs],
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as markdown."""
    ratios = [
        f"| {each['case']} | {each['throughput']} | {each['cpu']} |" for each in figures["ratios"]
    ]
    head = ["| over the same on the CPU | throughput | CPU |", "|---|---|---|"]
    return "\n".join([*case_rows(figures["cases"]), "", *head, *ratios])


@contextmanager
def _services(folder: Path, device: str) -> Iterator[list[Server]]:
    """One on the CPU and one on the device, with all experiments declared."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(service(folder / name, DEVICE=where, MAX_BODY_BYTES=LARGE))
            for name, where in (("cpu", "cpu"), ("other", device))
        ]
        for server in servers:
            _declare(server)
        yield servers


def _declare(server: Server) -> None:
    for name, declared in EXPERIMENTS.items():
        body = {
            "name": name,
            "arms": [f"arm-{number}" for number in range(ARMS)],
            "durability": "relaxed",
            **declared,
        }
        answer = httpx.post(f"{server.url}/experiments", json=body, timeout=60)
        assert answer.status_code == 201, answer.text


def _cases(server: Server, where: str) -> list[Case]:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for name, declared in EXPERIMENTS.items():
        shape = (BATCH, *declared["context"]["shape"])
        contexts = rng.standard_normal(shape).astype(np.float32)
        one = http_request(f"/select?experiment={name}", contexts[0].tobytes(), BYTES)
        path = f"/target/select?experiment={name}"
        many = http_request(path, contexts.tobytes(), BYTES, TABLE)
        cases += [
            Case(f"select, {name}, {where}", server, [one].copy, CALLERS),
            Case(f"target/select, {name}, {where}", server, [many].copy, 1, BATCH),
        ]
    return cases


def _machine(device: str) -> str:
    is_cuda = torch.device(device).type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else platform.processor()
    return f"{name or platform.machine()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
