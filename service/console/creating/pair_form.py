"""The form of two tables: what a person chose of their columns, and what is guessed until then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import FormData

from service import DEFAULT_METHOD
from service.columns.schema import TableError
from service.columns.seen import ColumnTypes
from service.console.creating.forms import range_of, text_of, texts_of
from service.formats.table_pair import PairChoices, TablePair, surveyed_pair
from service.formats.tables import TableFile

GUESSED_ROWS = 200  # that a guess looks at
MOST_ARMS = 20  # of a guess
AS_FOUND = "as found"
FORCED = ("categorical", "numeric")
NAMES = ("name", "arm", "reward", "id", "method", "seed", "low", "high", "reason", "by")


@dataclass(frozen=True, slots=True)
class PairTyped:
    """The form as it is, to be shown again."""

    texts: Mapping[str, str]
    is_exclusive: bool
    types: Mapping[str, str]
    ignore: tuple[str, ...]
    keep: tuple[str, ...]

    @classmethod
    def of(cls, form: FormData) -> "PairTyped":
        """The form as it was sent; before that, its defaults."""
        defaults = {"method": DEFAULT_METHOD, "seed": "0"}
        return cls(
            {name: text_of(form, name) or defaults.get(name, "") for name in NAMES},
            text_of(form, "exclusive") == "yes",
            dict(zip(texts_of(form, "column"), texts_of(form, "type"), strict=False)),
            tuple(texts_of(form, "ignore")),
            tuple(texts_of(form, "keep")),
        )


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of the tables, as the survey found it."""

    name: str
    type: str
    levels: tuple[str, ...]
    missing: tuple[float, ...]
    is_used: bool
    chosen_type: str


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What is known of two files: their columns, the roles of some, and the survey or why there is none."""

    source: TableFile
    target: TableFile
    roles: Mapping[str, str]
    pair: TablePair | None
    refusal: str | None

    def columns(self, typed: PairTyped) -> list[ShownColumn]:
        """The columns that both files have, but for those with a role."""
        both = [each for each in self.source.names if each in self.target.names]
        return [_shown(each, self.pair, typed) for each in both if each not in self.roles.values()]


def surveyed(source: TableFile, target: TableFile, typed: PairTyped, form: FormData) -> Surveyed:
    """Both files, with the columns that were chosen, or a guess where none was."""
    files = (source, target)
    roles = _roles(files, typed)
    if not roles["arm"] or not roles["reward"]:
        return Surveyed(*files, roles, None, "Choose the arm and the reward.")
    wanted = _choices(files, roles, typed, _range(form))
    try:
        return Surveyed(*files, roles, surveyed_pair(wanted), None)
    except TableError as error:
        return Surveyed(*files, roles, None, str(error))


def _choices(
    files: Sequence[TableFile],
    roles: Mapping[str, str],
    typed: PairTyped,
    reward_range: tuple[float, float] | None,
) -> PairChoices:
    """What is to be surveyed: the columns that both files have, but for those to leave out."""
    source, target = files
    shared = {*source.names} & {*target.names}
    left_out = {*source.names, *target.names} - shared | (shared & {*typed.ignore})
    context = shared - {*roles.values()} - left_out
    labels = {roles["arm"], roles["reward"]}
    return PairChoices(
        source.path,
        target.path,
        roles["arm"],
        roles["reward"],
        ignore=tuple(sorted((left_out | {roles["id"]}) - labels - {""})),
        types=_types(typed, context),
        keep=tuple(each for each in typed.keep if each in context),
        reward_range=reward_range,
        sent_as=(source.name, target.name),
    )


def _range(form: FormData) -> tuple[float, float] | None:
    found = range_of(form)
    return None if found is None else (found[0], found[1])


def _types(typed: PairTyped, names: set[str]) -> ColumnTypes:
    chosen = {
        kind: [n for n, k in typed.types.items() if k == kind and n in names] for kind in FORCED
    }
    return ColumnTypes(chosen["categorical"], chosen["numeric"])


def _roles(files: Sequence[TableFile], typed: PairTyped) -> dict[str, str]:
    """The arm, the reward and the row's name: columns of the source, chosen or guessed."""
    source, target = files
    chosen = {role: typed.texts[role] for role in ("arm", "reward", "id")}
    known = {role: name if name in source.names else "" for role, name in chosen.items()}
    if known["arm"] or known["reward"]:
        return known
    return guessed_roles(source, target)


def guessed_roles(source: TableFile, target: TableFile) -> dict[str, str]:
    """Of the columns that the source has alone: the only number is the reward, the only text with few
    values the arm, the only one that differs in each row its name. What is not clear stays open."""
    rows = source.sample(GUESSED_ROWS)
    found: dict[str, list[str]] = {"arm": [], "reward": [], "id": []}
    for name in source.names:
        if name not in target.names:
            role = _role([row[name] for row in rows if row[name] is not None])
            found.setdefault(role, []).append(name)
    return {
        role: found[role][0] if len(found[role]) == 1 else "" for role in ("arm", "reward", "id")
    }


def _role(values: Sequence[object]) -> str:
    if values and all(isinstance(each, int | float) for each in values):
        return "reward"
    distinct = len(set(values))
    if 1 < distinct <= MOST_ARMS and distinct < len(values):
        return "arm"
    return "id" if distinct == len(values) and values else "other"


def _shown(name: str, pair: TablePair | None, typed: PairTyped) -> ShownColumn:
    chosen = typed.types.get(name, AS_FOUND)
    column = pair.schema.by_name.get(name) if pair else None
    seen = next((each for each in pair.seen if each.name == name), None) if pair else None
    missing = tuple(each.missing_share for each in seen.parts) if seen else ()
    if column is None:
        return ShownColumn(name, "left out" if pair else "", (), missing, pair is None, chosen)
    return ShownColumn(name, column.type.value, column.values, missing, True, chosen)
