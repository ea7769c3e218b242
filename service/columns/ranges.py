"""Levels that are ranges of numbers, such as age groups: they have an order of their own."""

import math
import re
from collections.abc import Collection

_NUMBER = r"([+-]?\d+(?:[.,]\d+)?)"
_PLAIN = re.compile(_NUMBER)
_BETWEEN = re.compile(rf"{_NUMBER}\s*(?:-|–|—|to)\s*{_NUMBER}")
_FROM = re.compile(rf"(?:(?:>=?|≥)\s*{_NUMBER}|{_NUMBER}\s*\+)")
_UP_TO = re.compile(rf"(?:<=?|≤)\s*{_NUMBER}")

Bounds = tuple[float, float]


def ordered_ranges(levels: Collection[str]) -> tuple[str, ...] | None:
    """The levels from low to high if all are numbers or ranges (`10 - 19`, `90+`, `<5`), or None."""
    bounds = {level: _bounds(level) for level in levels}
    known = [each for each in bounds.values() if each is not None]
    is_range = any(low < high for low, high in known)
    if len(known) < len(bounds) or len(set(known)) < max(2, len(known)) or not is_range:
        return None
    return tuple(sorted(levels, key=lambda level: bounds[level] or (0.0, 0.0)))


def _bounds(level: str) -> Bounds | None:
    """The lowest and highest number of a level; None if it is neither a number nor a range."""
    text = level.strip()
    if found := _PLAIN.fullmatch(text):
        return _number(found[1]), _number(found[1])
    if found := _BETWEEN.fullmatch(text):
        low, high = _number(found[1]), _number(found[2])
        return (low, high) if low <= high else None
    if found := _FROM.fullmatch(text):
        return _number(found[1] or found[2]), math.inf
    if found := _UP_TO.fullmatch(text):
        return -math.inf, _number(found[1])
    return None


def _number(text: str) -> float:
    return float(text.replace(",", "."))
