"""An experiment as a person types it: the fields of the form, and the declaration that they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from starlette.datastructures import FormData

from service import DEFAULT_METHOD
from service.codec.bodies import ContextBody, ExperimentBody
from service.columns.schema import ColumnType, DeclaredColumn
from service.console.creating.forms import integer_of, range_of, text_of, texts_of
from service.errors import refuse

MOST_COLUMNS = 200  # of the form; tables have more
NAMES = ("name", "arms", "method", "seed", "size", "low", "high", "reason", "by")


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column as it is typed; the levels are separated by commas."""

    name: str = ""
    type: str = ColumnType.NUMERIC.value
    levels: str = ""
    missing: str = "no"

    @property
    def is_empty(self) -> bool:
        return not self.name and not self.levels


@dataclass(frozen=True, slots=True)
class Typed:
    """The form as it is, to be shown again."""

    texts: Mapping[str, str]
    kind: str
    is_exclusive: bool
    columns: tuple[ColumnField, ...]

    @classmethod
    def fresh(cls) -> "Typed":
        """The form before anything is typed."""
        texts = {**dict.fromkeys(NAMES, ""), "method": DEFAULT_METHOD, "seed": "0", "size": "4"}
        return cls(texts, "table", is_exclusive=False, columns=(ColumnField(), ColumnField()))

    @classmethod
    def of(cls, form: FormData) -> "Typed":
        """The form as it was sent."""
        fields = (texts_of(form, each) for each in ("column", "type", "levels", "missing"))
        columns = tuple(ColumnField(*each) for each in zip_longest(*fields, fillvalue=""))
        texts = {name: text_of(form, name) for name in NAMES}
        is_exclusive = text_of(form, "exclusive") == "yes"
        return cls(texts, text_of(form, "kind"), is_exclusive, columns[:MOST_COLUMNS])

    def changed(self, act: str) -> "Typed":
        """With one more column, or without one."""
        if act == "add":
            return replace(self, columns=(*self.columns, ColumnField())[:MOST_COLUMNS])
        gone = act.removeprefix("remove-")
        kept = tuple(each for at, each in enumerate(self.columns) if str(at) != gone)
        return replace(self, columns=kept)

    def declared(self, form: FormData) -> ExperimentBody:
        """The body of `POST /experiments` that the form means."""
        arms = [each.strip() for each in self.texts["arms"].splitlines() if each.strip()]
        if not arms:
            refuse("Name at least one arm.", "#/arms")
        return ExperimentBody(
            name=self.texts["name"],
            arms=arms,
            context=self._context(form),
            method=self.texts["method"],
            seed=integer_of(form, "seed"),
            config={"exclusive_rewards": True} if self.is_exclusive else {},
            reward_range=range_of(form),
        )

    def _context(self, form: FormData) -> ContextBody:
        if self.kind == "vector":
            return ContextBody("shared", shape=[integer_of(form, "size")])
        columns = [_column(each) for each in self.columns if not each.is_empty]
        return ContextBody("table", columns=columns)


def _column(typed: ColumnField) -> DeclaredColumn:
    if typed.type not in tuple(ColumnType):
        refuse(f"A type is one of {', '.join(ColumnType)}.", "#/context/columns")
    levels: list[str | int] = [each.strip() for each in typed.levels.split(",") if each.strip()]
    return DeclaredColumn(
        typed.name,
        ColumnType(typed.type),
        values=levels or None,
        missing=typed.missing == "yes",
    )
