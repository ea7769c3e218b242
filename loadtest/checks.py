"""A figure, what it must be, and whether it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report: the figure and its bound in words, and whether the bound holds."""

    name: str
    figure: str
    bound: str
    is_met: bool


def at_least(name: str, figure: float, bound: float, form: str = "{:.2f}") -> Check:
    """A figure that must not be below the bound."""
    return Check(name, form.format(figure), f"≥ {form.format(bound)}", figure >= bound)


def at_most(name: str, figure: float, bound: float, form: str = "{:.2f}") -> Check:
    """A figure that must not be above the bound."""
    return Check(name, form.format(figure), f"≤ {form.format(bound)}", figure <= bound)
