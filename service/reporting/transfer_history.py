"""The history of an experiment's transfer, for answers, reports and CSV."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

from service.records import (
    AuditRecord,
    EventKind,
    StoredEvent,
    TransferRecord,
    declared_best_reward,
)

WORDS = {
    EventKind.PHASE: "phase_changed",
    EventKind.ACTIVATION: "encoder_activated",
    EventKind.REFUSAL: "encoder_refused",
    EventKind.CANDIDATE: "encoder_waits",
    EventKind.PROMOTION: "encoder_promoted",
    EventKind.RESTORE: "version_restored",
    EventKind.REFOLD: "log_folded_again",
    EventKind.TRAINING: "training_begun",
    EventKind.HISTORY: "history_imported",
}
SERVING = frozenset({EventKind.ACTIVATION, EventKind.PROMOTION, EventKind.RESTORE})
GATE = SERVING | {EventKind.REFUSAL, EventKind.CANDIDATE}


def entry(event: StoredEvent) -> dict[str, Any]:
    """An event of the lifecycle, as answered."""
    return {
        "offset": event.offset,
        "at": event.created_at,
        "what": WORDS[event.kind],
        "details": json.loads(event.payload),
    }


def act_entry(record: AuditRecord) -> dict[str, Any]:
    """An administrative act on the experiment, as answered."""
    return {
        "offset": None,
        "at": record.created_at,
        "what": record.act,
        "details": record.actor.details(),
    }


def gate_entries(lifecycle: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    """The outcomes of trained encoders, in order."""
    return [entry(event) for event in lifecycle if event.kind in GATE]


def what_and_why(entry: Mapping[str, Any]) -> tuple[str, str]:
    """What was done and by whom, and the reasons."""
    details = entry["details"]
    author = f" by {details['by']}" if details.get("by") else ""
    reasons = details.get("verdict", {}).get("reasons") or [details.get("reason")]
    return str(entry["what"]).replace("_", " ") + author, "; ".join(filter(None, reasons))


def versions(
    records: Sequence[TransferRecord], lifecycle: Sequence[StoredEvent]
) -> list[dict[str, Any]]:
    """Each judged encoder version with the event that activated it."""
    return [
        {
            "encoder_version": record.encoder_version,
            "offset": record.offset,
            "at": record.created_at,
            "verdict": record.judgement["verdict"],
            "expected": record.judgement.get("expected"),
            "signs": record.judgement["signs"],
            "diagnostics": record.judgement["diagnostics"],
            "gate": _gate_of(record, lifecycle),
        }
        for record in records
    ]


def _gate_of(record: TransferRecord, lifecycle: Sequence[StoredEvent]) -> dict[str, Any] | None:
    before = [e for e in lifecycle if e.kind in SERVING and e.offset <= record.offset]
    return entry(before[-1]) if before else None


def as_csv(found: Sequence[dict[str, Any]]) -> str:
    """One row per judged encoder version; reasons are joined by semicolons. Earlier builds had other signs."""
    stream = io.StringIO()
    rows = [_row(each) for each in reversed(found)]
    first = ("encoder_version", "offset", "at", "verdict", "reasons")
    columns = list(dict.fromkeys(chain(first, *rows)))
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(reversed(rows))
    return stream.getvalue()


def _row(version: dict[str, Any]) -> dict[str, Any]:
    gate = version["gate"] or {"what": "", "details": {}}
    verdict = gate["details"].get("verdict", {})
    return {
        "encoder_version": version["encoder_version"],
        "offset": version["offset"],
        "at": version["at"].isoformat(),
        "verdict": version["verdict"]["word"],
        "reasons": "; ".join(version["verdict"]["reasons"]),
        "expected_lower": (version["expected"] or {}).get("lower"),
        **version["signs"],
        **version["diagnostics"],
        "gate": gate["what"],
        "gate_episode": gate["details"].get("episode"),
        "gate_reward": verdict.get("reward"),
        "gate_reward_before": verdict.get("reward_before"),
    }


MAX_POINTS = 200


def target_regret(lifecycle: Sequence[StoredEvent], rewards: Sequence[float]) -> dict[str, Any]:
    """Count, cumulative regret Σ (best − r) and its curve; empty while the target is closed."""
    opened = [event for event in lifecycle if event.kind is EventKind.PHASE]
    if not opened:
        return {"rewards": 0, "best_reward": None, "cumulative": 0.0, "curve": []}
    best = declared_best_reward(opened[0])
    total = list(accumulate(best - reward for reward in rewards))
    step = max(1, -(-len(total) // MAX_POINTS))
    curve = [[count, total[count - 1]] for count in range(step, len(total) + 1, step)]
    if total and (not curve or curve[-1][0] != len(total)):
        curve.append([len(total), total[-1]])
    cumulative = total[-1] if total else 0.0
    return {"rewards": len(total), "best_reward": best, "cumulative": cumulative, "curve": curve}
