"""The form of a history: which columns of a file mean what, chosen by a person or guessed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData

from service.columns.schema import TableError
from service.console.creating.forms import text_of, texts_of
from service.evaluating.history import history_shape
from service.experiment_spec import ExperimentSpec
from service.formats.history import HistoryColumns, HistorySpool, spooled
from service.formats.tables import TableFile

ROLES = {
    "arm": ("Arm", "what was done"),
    "reward": ("Reward", "what it earned"),
    "time": ("Time", "orders the rounds; numbers or ISO 8601"),
    "propensity": ("Propensity", "the probability of the arm, for offline evaluation"),
    "id": ("Row's name", "kept in the log"),
}
SHOWN_ROWS = 5
GUESSED_ROWS = 200


@dataclass(frozen=True, slots=True)
class PastFile:
    """A file of past rounds: its first rows, the meaning of its columns, what is left out."""

    file: TableFile
    rows: list[dict[str, Any]]
    roles: Mapping[str, str]
    ignore: tuple[str, ...]

    @property
    def columns(self) -> HistoryColumns | None:
        """The meaning of the columns; None until arm and reward are chosen."""
        roles = {role: name or None for role, name in self.roles.items()}
        arm, reward = roles.pop("arm"), roles.pop("reward")
        if arm is None or reward is None:
            return None
        return HistoryColumns(arm, reward, **roles, ignore=self.ignore)

    def context(self) -> list[str]:
        """The columns that are the context of a round."""
        apart = {*self.roles.values(), *self.ignore}
        return [name for name in self.file.names if name not in apart]

    def spooled(self, spec: ExperimentSpec) -> HistorySpool:
        """All rounds, checked; `TableError` names row and column of what does not fit."""
        columns = self.columns
        if columns is None:
            raise TableError("Choose the arm and the reward.")
        return spooled(self.file, columns, history_shape(spec))


def past_file(form: FormData, file: TableFile, spec: ExperimentSpec) -> PastFile:
    """The file of a form."""
    rows = file.sample(GUESSED_ROWS)
    roles = {role: text_of(form, role) for role in ROLES}
    roles = {role: name if name in file.names else "" for role, name in roles.items()}
    if not roles["arm"] and not roles["reward"]:
        roles |= _guessed(file, rows, spec)
    named = set(roles.values())
    if spec.table is None:
        left = texts_of(form, "ignore")
    else:  # what the experiment does not have is no context
        left = [name for name in file.names if name not in spec.table.by_name]
    ignore = tuple(name for name in file.names if name in left and name not in named)
    return PastFile(file, rows[:SHOWN_ROWS], roles, ignore)


def _guessed(file: TableFile, rows: list[dict[str, Any]], spec: ExperimentSpec) -> dict[str, str]:
    """The only column that holds arms, and the only other number; what is not clear stays open."""
    known = {} if spec.table is None else spec.table.by_name
    free = [name for name in file.names if name not in known]
    values = {name: [row[name] for row in rows if row[name] is not None] for name in free}
    arms = [
        name
        for name in free
        if values[name] and {str(each) for each in values[name]} <= {*spec.arms}
    ]
    numbers = [
        name
        for name in free
        if name not in arms
        and values[name]
        and all(isinstance(each, int | float) for each in values[name])
    ]
    return {
        "arm": arms[0] if len(arms) == 1 else "",
        "reward": numbers[0] if len(numbers) == 1 and known else "",
    }
