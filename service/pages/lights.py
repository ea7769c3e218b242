"""Lights: good, caution or bad, by a symbol and a word, never by colour alone."""

from enum import Enum


class Light(Enum):
    """A rating, with its symbol."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    UNKNOWN = "not known"

    @property
    def symbol(self) -> str:
        return {"good": "✓", "caution": "!", "bad": "✕"}.get(self.value, "?")

    @property
    def css_class(self) -> str:
        return self.name.lower()
