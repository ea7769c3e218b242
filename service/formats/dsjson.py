"""Vowpal Wabbit's dsjson: one decision per line, costs are negative rewards.

Named features of foreign lines are hashed into one vector per arm, and the line's own fields are kept in
`extra`, from which it is written again. Our own lines have their vectors as arrays, which VW reads as
features, and the fields that dsjson lacks under `daband`.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any

import msgspec
import numpy as np

from model import MAX_ARMS, ContextKind, Domain
from service.formats.hashing import SIZE, Token, hashed, tokens
from service.formats.jsonl import packed
from service.formats.records import (
    LogFormatError,
    LoggedDecision,
    LogHeader,
    LogReader,
    log_lines,
    reason_of,
)
from service.limits import MEBIBYTE
from service.records import CONTEXT_TYPE
from service.unpacking import MAX_FEATURE_BYTES, MAX_FEATURES

OWN = "daband"
# Fields of a line that are derived again when it is written.
DERIVED = ("_label_cost", "_label_probability", "_label_Action", "_labelIndex", "EventId", "p")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read(file: IO[bytes], skip_bad: bool = False) -> LogReader:
    """A log from dsjson; lines that only observe rewards are skipped."""
    lines = log_lines(file)
    first = next(lines, b"")
    header = _header(first)
    return LogReader(header, chain([first], lines), lambda text: _decision(text, header), skip_bad)


def write(file: IO[bytes], header: LogHeader, decisions: Iterable[LoggedDecision]) -> int:
    """Write a log; returns the number of decisions."""
    count = 0
    for decision in decisions:
        foreign = decision.extra.get("dsjson")
        line = _own_line(decision, header) if foreign is None else _foreign_line(decision, foreign)
        file.write(_encode(line) + b"\n")
        count += 1
    return count


def _header(first: bytes) -> LogHeader:
    foreign = LogHeader(arms=(), context_kind=ContextKind.PER_ARM, context_shape=(SIZE,))
    try:
        own = _decode(first).get(OWN) if first.strip() else None
        return foreign if own is None else msgspec.convert(own["header"], LogHeader)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, msgspec.DecodeError | RecursionError):
            return foreign  # the error is reported when the line is read
        raise LogFormatError(f"line 1: {reason_of(error)}") from error


def _decision(text: bytes, header: LogHeader) -> LoggedDecision | None:
    if not text.strip():
        return None
    fields = _decode(text)
    if "RewardValue" in fields and "c" not in fields:
        return None
    return _own(fields, header) if OWN in fields else _foreign(fields)


def _foreign(fields: dict[str, Any]) -> LoggedDecision:
    context = fields["c"]
    if "_slots" in context or "_outcomes" in fields or "_label_ca" in fields:
        raise ValueError("c: slots and continuous actions are not supported")
    choices = context["_multi"]
    arms = _arm_names(choices)
    if "_label_Action" not in fields:
        raise ValueError("_label_Action: missing; the line has no chosen action")
    chosen = fields["_label_Action"] - 1
    if not 0 <= chosen < len(arms) or fields.get("_labelIndex", chosen) != chosen:
        raise ValueError("_label_Action: not one of the actions, or different from _labelIndex")
    if fields.get("pdrop", 0) != 0:
        raise ValueError("pdrop: logs that dropped events cannot be weighted")
    cost = None if fields.get("_skipLearn") else fields.get("_label_cost")
    return LoggedDecision(
        decision_id=fields["EventId"],
        arms=arms,
        arm=arms[chosen],
        propensity=fields["_label_probability"],
        probabilities=_in_arm_order(fields, len(arms)),
        reward=None if cost is None else -cost,
        context=_hashed_contexts(context, choices, arms),
        time=fields.get("Timestamp"),
        extra={"dsjson": {name: fields[name] for name in fields if name not in DERIVED}},
    )


def _arm_names(choices: list[dict[str, Any]]) -> tuple[str, ...]:
    tags = [each.get("_tag") for each in choices]
    if all(isinstance(tag, str) for tag in tags) and len(set(tags)) == len(tags):
        return tuple(tag for tag in tags if isinstance(tag, str))
    return tuple(str(number) for number in range(1, len(choices) + 1))


def _in_arm_order(fields: dict[str, Any], count: int) -> tuple[float, ...] | None:
    ranked, given = fields.get("a"), fields.get("p")
    if ranked is None or given is None:
        return None
    if sorted(ranked) != list(range(1, count + 1)) or len(given) != count:
        raise ValueError("a, p: must rank every action once")
    found = [0.0] * count
    for number, probability in zip(ranked, given, strict=True):
        found[number - 1] = probability
    return tuple(found)


def _hashed_contexts(
    context: dict[str, Any], choices: list[dict[str, Any]], arms: tuple[str, ...]
) -> bytes:
    if len(arms) > MAX_ARMS:
        raise ValueError(f"c: there may be {MAX_ARMS:,} actions")
    shared = list(_bounded(tokens(context), len(arms)))
    rows = []
    for arm, choice in zip(arms, choices, strict=True):
        # All arms share one model, so shared features are crossed with the arm.
        crossed = [(f"{arm}&{name}", value) for name, value in shared]
        rows.append(hashed([*_bounded(tokens(choice), 1), *crossed]))
    return np.stack(rows).astype(CONTEXT_TYPE).tobytes()


def _bounded(found: Iterable[Token], times: int) -> Iterator[Token]:
    """The features of a line, as long as they fit; each is hashed so many times."""
    count = size = 0
    for token in found:
        count += times
        size += times * len(token[0])
        if count > MAX_FEATURES or size > MAX_FEATURE_BYTES:
            raise ValueError(
                f"c: features times actions may be {MAX_FEATURES:,}, and their names "
                f"{MAX_FEATURE_BYTES // MEBIBYTE} MiB"
            )
        yield token


def _label(decision: LoggedDecision) -> dict[str, Any]:
    """The first fields of every line: the chosen action, its probability, and its cost if known."""
    if decision.propensity is None:
        raise LogFormatError("dsjson cannot represent a decision without a propensity")
    chosen = decision.arms.index(decision.arm)
    cost = {} if decision.reward is None else {"_label_cost": -decision.reward}
    return {
        **cost,
        "_label_probability": decision.propensity,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
    }


def _foreign_line(decision: LoggedDecision, kept: dict[str, Any]) -> dict[str, Any]:
    line = {**_label(decision), "EventId": decision.decision_id, **kept}
    if decision.probabilities is not None and "a" in kept:
        line["p"] = [decision.probabilities[number - 1] for number in kept["a"]]
    return line


def _own(fields: dict[str, Any], header: LogHeader) -> LoggedDecision:
    own, context = fields[OWN], fields["c"]
    rows = (
        [each["context"] for each in context["_multi"]] if header.is_per_arm else context["context"]
    )
    arms = tuple(each["_tag"] for each in context["_multi"])
    cost = fields.get("_label_cost")
    return LoggedDecision(
        decision_id=fields["EventId"],
        arms=arms,
        arm=arms[fields["_labelIndex"]],
        propensity=fields["_label_probability"],
        probabilities=_in_arm_order(fields, len(arms)),
        reward=None if cost is None else -cost,
        context=packed(rows),
        domain=Domain(own["domain"]),
        policy_version=own["policy_version"],
        time=fields.get("Timestamp"),
        segment=own["segment"],
        extra=own["extra"],
    )


def _own_line(decision: LoggedDecision, header: LogHeader) -> dict[str, Any]:
    chosen = decision.arms.index(decision.arm)
    line = {
        **_label(decision),
        "Timestamp": decision.time,
        "Version": "1",
        "EventId": decision.decision_id,
    }
    if decision.probabilities is not None:
        ranked = [chosen, *(each for each in range(len(decision.arms)) if each != chosen)]
        line["a"] = [each + 1 for each in ranked]
        line["p"] = [decision.probabilities[each] for each in ranked]
    line["c"] = _own_context(decision, header)
    line["VWState"] = {"m": str(decision.policy_version)}
    line[OWN] = {
        "header": header,
        "domain": decision.domain,
        "policy_version": decision.policy_version,
        "segment": decision.segment,
        "extra": decision.extra,
    }
    return line


def _own_context(decision: LoggedDecision, header: LogHeader) -> dict[str, Any]:
    numbers = np.frombuffer(decision.context, CONTEXT_TYPE)
    choices: list[dict[str, Any]] = [{"_tag": arm, "arm": {arm: 1}} for arm in decision.arms]
    if not header.is_per_arm:
        return {"context": numbers.tolist(), "_multi": choices}
    for choice, row in zip(choices, numbers.reshape(len(choices), -1).tolist(), strict=True):
        choice["context"] = row
    return {"_multi": choices}
