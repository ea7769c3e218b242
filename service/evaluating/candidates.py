"""Candidates and their names: `uniform`, `arm:low`, `version:12`, `system:nlinucb,alpha=0.2`, `file:…`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from model import (
    Domain,
    Doubles,
    Learner,
    Policy,
    SnapshotError,
    is_policy_file,
    open_exported,
    restore_policy,
)
from model.ope import (
    EvaluationPolicy,
    FixedArmCandidate,
    FrozenCandidate,
    LearningCandidate,
    TableCandidate,
    UniformCandidate,
)
from service.experiment_spec import ExperimentSpec
from service.formats.records import LogHeader

# The field that a kind of candidate requires.
FIELDS = {"arm": "arm", "version": "version", "system": "method", "file": "path"}


class CandidateSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate to evaluate; each kind uses its own field."""

    kind: Literal["uniform", "arm", "version", "system", "file"]
    arm: str | None = None
    version: int | None = None
    method: str | None = None
    config: dict[str, Any] = {}
    path: str | None = None

    @property
    def name(self) -> str:
        """The candidate's name as on the command line."""
        field = FIELDS.get(self.kind)
        start = self.kind if field is None else f"{self.kind}:{getattr(self, field)}"
        return ",".join(filter(None, (start, changes_text(self.config))))

    @property
    def learns(self) -> bool:
        """Whether its choices depend on the rounds before."""
        return self.kind == "system"

    def missing(self) -> str | None:
        """The missing field that this kind requires, if any."""
        field = FIELDS.get(self.kind)
        return field if field is not None and getattr(self, field) is None else None


class UnfitCandidateError(ValueError):
    """A candidate that cannot be evaluated on this log."""


def parsed(text: str) -> CandidateSpec:
    """A candidate from the command line."""
    kind, _, rest = text.partition(":")
    value, *changes = rest.split(",")
    match kind:
        case "file":
            return CandidateSpec(kind="file", path=rest)
        case "uniform" if not rest:
            return CandidateSpec(kind="uniform")
        case "arm" if value:
            return CandidateSpec(kind="arm", arm=rest)
        case "version" if rest.isdecimal():
            return CandidateSpec(kind="version", version=int(rest))
        case "system" if value:
            return CandidateSpec(kind="system", method=value, config=changed_values(changes))
    raise UnfitCandidateError(
        f"candidate {text!r}: one of uniform, arm:…, version:…, system:…, file:…"
    )


def changed_values(changes: list[str]) -> dict[str, Any]:
    """The values of `name=value` changes: JSON if it parses, otherwise text."""
    found: dict[str, Any] = {}
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator or not name:
            raise UnfitCandidateError(f"{change!r}: expected name=value")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def changes_text(changes: Mapping[str, Any]) -> str:
    """The changes as on the command line."""
    texts = {
        name: each if isinstance(each, str) else json.dumps(each) for name, each in changes.items()
    }
    return ",".join(f"{name}={text}" for name, text in texts.items())


@dataclass(frozen=True, slots=True)
class Made:
    """A candidate ready for evaluation; a stored version knows the rounds that trained it."""

    candidate: EvaluationPolicy
    trained_offset: int | None = None
    policy: Policy | None = None
    domain_free: bool = False  # whether it can also decide for target contexts


class CandidateMaker:
    """Makes candidates for one log; `spec` is the experiment's, if there is one."""

    def __init__(
        self,
        header: LogHeader,
        domain: Domain,
        spec: ExperimentSpec | None,
        segments: dict[str, int],
    ) -> None:
        self._header = header
        self._domain = domain
        self._spec = spec
        self._segments = segments

    def make(self, wanted: CandidateSpec, blob: bytes | None = None) -> Made:
        """The candidate; `blob` is the snapshot of a version."""
        match wanted.kind:
            case "uniform":
                return Made(UniformCandidate(), domain_free=True)
            case "arm":
                return Made(FixedArmCandidate(self._column(wanted.arm or "")), domain_free=True)
            case "system":
                method = wanted.method or ""
                learner = fresh_learner(self._header, self._spec, method, wanted.config)
                return Made(LearningCandidate(learner))
            case "version":
                return self._frozen(blob or b"")
            case "file":
                return self._from_file(Path(wanted.path or ""))

    def _column(self, arm: str) -> int:
        if arm not in self._header.arms:
            raise UnfitCandidateError(f"arm: the log has no arm {arm!r}")
        return self._header.arms.index(arm)

    def _frozen(self, blob: bytes) -> Made:
        try:
            policy = open_exported(blob).policy if is_policy_file(blob) else restore_policy(blob)
        except SnapshotError as error:
            raise UnfitCandidateError(f"policy: {error}") from error
        config = policy.config
        fits = config.context_shape == self._header.context_shape
        fits &= config.context_kind is self._header.context_kind
        fits &= config.is_joint or config.arm_count == len(self._header.arms)
        if not fits:
            raise UnfitCandidateError("policy: its arms or contexts do not match the log")
        made = FrozenCandidate(policy, self._domain)
        return Made(made, policy.version.offset, policy)

    def _from_file(self, path: Path) -> Made:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UnfitCandidateError(f"file: {error.strerror}") from error
        if path.suffix == ".json":
            return Made(self._table(content), domain_free=False)
        made = self._frozen(content)
        return Made(made.candidate, None, made.policy)

    def _table(self, content: bytes) -> TableCandidate:
        try:
            rows = msgspec.json.decode(content, type=PolicyTable).rows
        except msgspec.DecodeError as error:
            raise UnfitCandidateError(f"policy: not a table of probabilities: {error}") from error
        found: dict[int, Doubles] = {}
        for segment, row in rows.items():
            code = self._segments.setdefault("" if segment == "*" else segment, len(self._segments))
            found[code] = self._row(row)
        return TableCandidate(found)

    def _row(self, row: Mapping[str, float]) -> Doubles:
        values = np.zeros(len(self._header.arms))
        for arm, probability in row.items():
            values[self._column(arm)] = probability
        if (values < 0).any() or abs(values.sum() - 1.0) > 1e-6:
            raise UnfitCandidateError("policy: probabilities must lie in [0, 1] and sum to 1")
        return values


class PolicyTable(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag="daband-policy-table"
):
    """A policy without context: arm probabilities by segment; `*` is for logs without segments."""

    rows: dict[str, dict[str, float]]


def fresh_learner(
    header: LogHeader, spec: ExperimentSpec | None, method: str, changes: Mapping[str, Any]
) -> Learner:
    """An untrained learner with the experiment's configuration and the changes."""
    base = spec or log_spec(header)
    wanted = base.changed(method or base.method, changes)
    wanted.check()
    return Learner(wanted.bandit_config(), wanted.seed)


def log_spec(header: LogHeader) -> ExperimentSpec:
    """The experiment that a log's header declares."""
    return ExperimentSpec(
        "log", header.arms, header.context_kind, header.context_shape, table=header.table
    )
