"""Refuses requests for decisions that would take too much, before the work is done."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from model import Asked, BanditConfig, estimated_decisions
from service.codec.bodies import MAX_BATCH
from service.codec.target_contexts import TargetRows
from service.errors import BatchTooLarge, InvalidRequest
from service.experiment_spec import ExperimentSpec
from service.limits import DecisionLimits

_ROUNDING = 1e-9  # of a share


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Holds requests to the limits on their estimates."""

    limits: DecisionLimits

    def check_rounds(
        self,
        spec: ExperimentSpec,
        config: BanditConfig,
        rounds: Sequence[Sequence[Collection[str]]],
    ) -> None:
        """Raise `BatchTooLarge` if these rounds, the arms of each of their sides, are too many."""
        asked = [_sum([asked_of(spec, arms, is_logged=True) for arms in each]) for each in rounds]
        self._check(config, _sum(asked), asked, "rounds")

    def check_contexts(
        self, spec: ExperimentSpec, config: BanditConfig, groups: Sequence[TargetRows]
    ) -> None:
        """Raise `BatchTooLarge` if these contexts of the target are too many."""
        single = [asked_of(spec, each.arms, is_logged=False) for each in groups]
        whole = [asked_of(spec, each.arms, len(each.rows), is_logged=False) for each in groups]
        self._check(config, _sum(whole), single, "contexts")

    def _check(
        self, config: BanditConfig, whole: Asked, single: Sequence[Asked], unit: str
    ) -> None:
        if self._share(config, whole) <= 1 + _ROUNDING:
            return
        largest = self._largest(config, max(single, key=lambda each: (each.arms, each.name_bytes)))
        if largest:
            rule = f"At most {largest} {unit} of this size pass at once: send them in parts."
        else:
            rule = f"Not one of these {unit} passes: offer fewer arms."
        raise BatchTooLarge(f"{BatchTooLarge.default_detail()} {rule}", largest_batch=largest)

    def shown(self, spec: ExperimentSpec) -> dict[str, int] | None:
        """The largest batches of an experiment; none if it declares no arms, or this build cannot run it."""
        try:
            config = spec.bandit_config()
        except InvalidRequest:
            return None
        if not spec.arms:
            return None
        both, one = (asked_of(spec, spec.arms, rows, is_logged=rows == 2) for rows in (2, 1))
        return {
            "select_batch_rounds": min(MAX_BATCH, self._largest(config, both)),
            "target_select_contexts": min(MAX_BATCH, self._largest(config, one)),
        }

    def _largest(self, config: BanditConfig, one: Asked) -> int:
        return int(1 / self._share(config, one) + _ROUNDING)

    def _share(self, config: BanditConfig, asked: Asked) -> float:
        """The largest share of a limit that the estimate takes."""
        budget = estimated_decisions(config, asked)
        names = [each.name for each in fields(DecisionLimits)]
        return float(max(getattr(budget, name) / getattr(self.limits, name) for name in names))


def asked_of(
    spec: ExperimentSpec, arms: Collection[str], rows: int = 1, *, is_logged: bool
) -> Asked:
    """Rows that offer the same arms."""
    is_all = len(arms) == len(spec.arms)
    names = spec.arm_name_bytes if is_all else sum(len(arm.encode()) for arm in arms)
    return Asked(rows, rows * len(arms), rows * names, is_logged)


def _sum(asked: Sequence[Asked]) -> Asked:
    return Asked(
        sum(each.rows for each in asked),
        sum(each.arms for each in asked),
        sum(each.name_bytes for each in asked),
        asked[0].is_logged,
    )
