"""What a fit says at its end: the verdict, what may be expected, what to do next."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from daband_client.answers import State, Transfer
from service.cli.fit.tables import FitTables, Surveyed, notes
from service.deciding.target import TargetAnswer
from service.records import RewardRange
from service.reporting.advice import NOT_JUDGED, next_step


def arm_counts(answer: TargetAnswer) -> dict[str, int]:
    """How often each arm was decided."""
    arms = answer.spec.arms
    counts = np.bincount(answer.table()["arm"], minlength=len(arms)).tolist()
    return dict(zip(arms, counts, strict=True))


def summary(
    wanted: FitTables, tables: Surveyed, found: Counter[str], state: State, transfer: Transfer
) -> str:
    """Lines for a terminal."""
    lines = _lines(wanted, tables, found, state, transfer)
    return "".join(f"{line}\n" for line in lines)


def _expected(unit: RewardRange, transfer: Transfer) -> Iterator[str]:
    if transfer.expected is None:
        yield "expected  unknown: the transfer was not judged"
        return
    reward, lower = map(unit.in_unit, (transfer.expected.reward, transfer.expected.lower))
    yield f"expected  a mean reward of {reward:.4g} on the target, at least {lower:.4g}"
    yield "          no target reward was seen: this is an estimate, not a measurement"
    yield from (f"          it may be less if {each}" for each in transfer.conditions)


def _lines(
    wanted: FitTables, tables: Surveyed, found: Counter[str], state: State, transfer: Transfer
) -> Iterator[str]:
    verdict = transfer.verdict
    word = NOT_JUDGED if verdict is None else verdict.word
    arms = ", ".join(f"{arm} {count}" for arm, count in found.items() if count)
    yield from (f"note      {each}" for each in notes(tables.remarks))
    yield (
        f"learned   {state.counts['source_rewards']} rewards of {wanted.names[0]}, "
        f"{state.encoder_version} encoder updates in service"
    )
    yield f"decided   {found.total()} rows of {wanted.names[1]}: {arms}"
    yield f"verdict   {word}"
    yield from (f"          {each}" for each in (verdict.reasons if verdict else ()))
    yield from _expected(tables.unit, transfer)
    yield f"          past rounds earned {tables.rounds.mean:.4g}"
    step = next_step(word, state.encoder_version, int(state.noted.get("episode", 0)))
    yield f"next      {step}"
