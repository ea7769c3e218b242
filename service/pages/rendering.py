"""Pages from templates: every value is escaped, no page needs scripts or external resources."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from service.pages.lights import Light


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row names it. Columns of numbers and of long texts are given by index."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: Collection[int] = ()
    texts: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with what it means; without a drawing there is nothing to show yet."""

    name: str
    title: str
    meaning: str
    svg: Any = None
    light: Light | None = None


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that stands out."""

    title: str
    value: str
    meaning: str
    light: Light | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer of a page: a light, a word, what it means, why, and what to do next."""

    light: Light
    word: str
    meaning: str
    next_step: str
    reasons: Sequence[str] = field(default=())


def rendered(template: str, **values: Any) -> str:
    """The page."""
    return environment().get_template(template).render(**values)


@cache
def environment(*packages: str) -> Environment:
    """The templates of packages, and those that all pages share; an undefined name is an error."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in (*packages, "service.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
