"""The report of a run: Markdown for people, JSON for programs, both of the same facts."""

import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loadtest.bench import Bench, Stage
from loadtest.checks import Check
from loadtest.histogram import merged
from loadtest.plots import draw
from loadtest.request_counts import outcome_counts
from loadtest.sampling import MEBIBYTE

PERCENTILES = ("p50", "p90", "p99", "p99.9", "max")
PACKAGES = ("uvicorn", "uvloop", "fastapi", "numpy", "torch", "sqlalchemy")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run has shown: nothing when it is invalid."""

    checks: Sequence[Check]
    faults: Sequence[str]

    @property
    def word(self) -> str:
        """One word for it."""
        if self.faults:
            return "INVALID"
        return "passed" if all(check.is_met for check in self.checks) else "FAILED"


def facts(profile: str, bench: Bench, verdict: Verdict) -> dict[str, Any]:
    """Everything that the report says."""
    return {
        "profile": profile,
        "verdict": verdict.word,
        "faults": list(verdict.faults),
        "checks": [asdict(check) for check in verdict.checks],
        "service": bench.service.about,
        "workload": asdict(bench.workload),
        "machine": _machine(),
        "lag_ms": merged(played.counts.lag for played in bench.runs).summary(),
        "generator_cpu": max((max(played.cpu_shares) for played in bench.runs), default=0.0),
        "generators": max((len(played.cpu_shares) for played in bench.runs), default=0),
        "stages": [_stage(bench, stage) for stage in bench.stages],
        "events": [[round(moment - bench.started, 1), what] for moment, what in bench.events],
    }


def _machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _stage(bench: Bench, stage: Stage) -> dict[str, Any]:
    memory = bench.sampler.memory_bytes(stage.start, stage.end)
    return {
        "name": stage.name,
        "seconds": stage.seconds,
        "requests": stage.whole.due,
        "offered": stage.offered,
        "goodput": stage.goodput,
        "outcomes": outcome_counts(stage.whole),
        "latency_ms": stage.whole.good.summary(),
        "refusal_ms": stage.whole.refused.summary(),
        "cpu": bench.sampler.cpu_shares(stage.start, stage.end),
        "memory_mib": {name: size / MEBIBYTE for name, size in memory.items()},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The facts for people."""
    lines = [f"# Load test `{result['profile']}`: {result['verdict']}", ""]
    lines += [f"- invalid: {fault}" for fault in result["faults"]]
    lines += _about(result)
    if result["checks"]:
        lines += ["", "| checked | figure | bound | |", "|---|---|---|---|"]
        lines += [_check_row(check) for check in result["checks"]]
    lines += ["", _HEAD, "|---|" + "---|" * (_HEAD.count("|") - 2)]
    lines += [_stage_row(stage) for stage in result["stages"]]
    lines += ["", "Latencies in ms from the time at which a request was due, good answers only."]
    lines += [f"- {moment:.0f} s: {what}" for moment, what in result["events"]]
    return "\n".join(lines) + "\n"


_HEAD = (
    "| stage | s | offered /s | good /s | answers | p50 | p90 | p99 | p99.9 | max "
    "| 503: p50 | 503: p99 | CPU, cores | memory, MiB |"
)


def _about(result: Mapping[str, Any]) -> list[str]:
    machine, workload = result["machine"], result["workload"]
    averages = ", ".join(f"{each:g}" for each in machine["load_average"])
    lag = result["lag_ms"]
    return [
        f"- service: {result['service']}",
        f"- workload: {workload['arms']} arms, contexts of {workload['size']} numbers as "
        f"{workload['body']}, {workload['selects_a_reward'] or 'no'} selects a reward",
        f"- machine: {machine['cores']} cores {machine['architecture']}, load average {averages} "
        f"at the end, {machine['date']}",
        f"- generators: {result['generators']}, busiest {result['generator_cpu']:.0%} of a core, sent "
        f"late by p50 {lag.get('p50', 0):.2f}, p99 {lag.get('p99', 0):.2f}, "
        f"max {lag.get('max', 0):.1f} ms",
    ]


def _check_row(check: Mapping[str, Any]) -> str:
    word = "met" if check["is_met"] else "**missed**"
    return f"| {check['name']} | {check['figure']} | {check['bound']} | {word} |"


def _stage_row(stage: Mapping[str, Any]) -> str:
    answers = ", ".join(f"{number} × {outcome}" for outcome, number in stage["outcomes"].items())
    latency, refusal = stage["latency_ms"], stage["refusal_ms"]
    cells = [
        stage["name"],
        str(stage["seconds"]),
        f"{stage['offered']:.0f}",
        f"{stage['goodput']:.0f}",
        answers,
        *(_milliseconds(latency, name) for name in PERCENTILES),
        *(_milliseconds(refusal, name) for name in ("p50", "p99")),
        ", ".join(f"{name} {share:.2f}" for name, share in stage["cpu"].items()),
        ", ".join(f"{name} {size:.0f}" for name, size in stage["memory_mib"].items()),
    ]
    return f"| {' | '.join(cells)} |"


def _milliseconds(summary: Mapping[str, float], name: str) -> str:
    return f"{summary[name]:.1f}" if name in summary else "–"


def write(folder: Path, profile: str, bench: Bench, verdict: Verdict) -> Path:
    """Write report.md, report.json and report.png next to the service's logs; returns the first path."""
    folder.mkdir(parents=True, exist_ok=True)
    result = facts(profile, bench, verdict)
    (folder / "report.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))
    draw(bench, folder / "report.png", f"{profile}: {verdict.word}")
    for log in bench.service.logs.glob("*.log") if bench.service.logs else ():
        shutil.copy(log, folder)
    written = folder / "report.md"
    written.write_text(markdown(result) + "\n![over time](report.png)\n")
    return written
