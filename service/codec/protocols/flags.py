"""OpenFeature remote evaluation (OFREP): a flag's context as a context, and a decision as a flag."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from service.codec.bodies import MediaType, RoundBody, SideBody, TargetSelectBody, decode
from service.codec.contexts import sides_of
from service.codec.decisions import DecisionAnswer, Side
from service.codec.target_contexts import TargetRows, target_rows
from service.errors import EvaluationRefused, InvalidRequest, refuse
from service.experiment_spec import ExperimentSpec

TARGETING_KEY = "targetingKey"
SPLIT, TARGETING_MATCH, DISABLED = "SPLIT", "TARGETING_MATCH", "DISABLED"

Context = Mapping[str, Raw]
Flag = dict[str, Any]


class EvaluationBody(Struct):
    """POST /ofrep/v1/evaluate/flags and …/flags/{key}: providers may add fields."""

    context: dict[str, Raw] = {}


class SourceAnswer(Struct):
    """What a flag needs of the answer to a round."""

    policy_version: int
    source: DecisionAnswer


def context_of(content: bytes) -> Context:
    """The context of a request."""
    try:
        return decode(content, EvaluationBody).context
    except InvalidRequest as error:
        raise EvaluationRefused(errorCode="PARSE_ERROR", **error.members) from None


def targeting_key(context: Context) -> str:
    """The user of a request."""
    try:
        key = msgspec.json.decode(context.get(TARGETING_KEY, b'""'), type=str)
    except ValueError:  # no text, or none in UTF-8
        key = ""
    if not key:
        raise EvaluationRefused(
            "The context needs a `targetingKey`, a text.", errorCode="TARGETING_KEY_MISSING"
        )
    return key


def source_sides(spec: ExperimentSpec, context: Context) -> tuple[Side, ...]:
    """The context as the source side of a round."""
    try:
        content = _content(spec, context)
        if spec.is_per_arm:
            side = SideBody(contexts=decode(bytes(content), dict[str, Raw], pointer="#/contexts"))
        else:
            side = SideBody(context=content)
        return sides_of(spec, RoundBody(source=side), MediaType.JSON)
    except InvalidRequest as error:
        raise invalid_context(error) from None


def target_context(spec: ExperimentSpec, context: Context) -> list[TargetRows]:
    """The context as one of `/target/select`."""
    try:
        body = TargetSelectBody(experiment=spec.name, context=_content(spec, context))
        return target_rows(spec, body, MediaType.JSON)
    except InvalidRequest as error:
        raise invalid_context(error) from None


def invalid_context(error: InvalidRequest) -> EvaluationRefused:
    """A context that does not fit, in the protocol's words."""
    return EvaluationRefused(errorCode="INVALID_CONTEXT", **error.members)


def _content(spec: ExperimentSpec, context: Context) -> Raw:
    """The declared columns of a context, or its field `context` or `contexts`.

    All other fields are ignored: applications give every flag the same context.
    """
    if spec.table is not None and not spec.is_per_arm:
        row = {name: context[name] for name in spec.table.by_name if name in context}
        return Raw(msgspec.json.encode(row))
    name = "contexts" if spec.is_per_arm else "context"
    if name not in context:
        refuse(f"This experiment takes the field `{name}`.", f"#/context/{name}")
    return context[name]


def request_id(key: str, policy_version: int, round_digest: str) -> str:
    """The same for the same user and context under the same policy; the user is not readable from it."""
    named = f"{policy_version}|{round_digest}|{key}"
    return f"ofrep-{hashlib.sha256(named.encode()).hexdigest()}"


def source_flag(key: str, spec: ExperimentSpec, version: int, decision: DecisionAnswer) -> Flag:
    """A decision of the source, drawn from its probabilities."""
    facts = {
        "decision_id": decision.decision_id,
        "probability": decision.probabilities[decision.arm],
        "expected_value": decision.scores[decision.arm].mean,
        "policy_version": version,
    }
    return _flag(key, spec, decision.arm, SPLIT, facts)


def target_flag(key: str, spec: ExperimentSpec, version: int, decision: Mapping[str, Any]) -> Flag:
    """A decision of the frozen target policy: the best arm, without exploration."""
    facts = {
        "probability": decision["probabilities"][decision["arm"]],
        "expected_value": decision["mean"],
        "transfer_confidence": decision["transfer_confidence"],
        "policy_version": version,
    }
    return _flag(key, spec, decision["arm"], TARGETING_MATCH, facts)


def disabled_flag(key: str) -> Flag:
    """The flag of an experiment that takes no decisions: the application's default holds."""
    return {"key": key, "variant": "", "reason": DISABLED, "metadata": {}}


def _flag(key: str, spec: ExperimentSpec, arm: str, reason: str, facts: Mapping[str, Any]) -> Flag:
    value = _value(spec, arm)
    return {"key": key, "value": value, "variant": arm, "reason": reason, "metadata": facts}


def _value(spec: ExperimentSpec, arm: str) -> bool | str:
    """The arm; arms that are `true` and `false` make a flag of booleans."""
    return arm == "true" if set(spec.arms) == {"true", "false"} else arm
