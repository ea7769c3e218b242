"""The answer of a sweep, from the intervals alone."""

import pytest

from service.evaluating.pieces.sweep import answer, name_of


def variant(name: str, value: float, interval: list[float] | None) -> dict[str, object]:
    return {"name": name, "value": value, "estimates": {"dr": {"interval": interval}}}


A = variant("a", 0.5, [0.4, 0.6])
B = variant("b", 0.7, [0.61, 0.8])
C = variant("c", 0.65, [0.6, 0.7])
D = variant("d", 0.9, None)


@pytest.mark.parametrize(
    ("variants", "text"),
    [
        ([A, B], "b would have earned most."),
        ([A, B, C], "The log cannot tell b and c apart: their intervals overlap."),
        ([C, A, B], "The log cannot tell b and c apart: their intervals overlap."),
        ([A, B, D], "The log cannot tell: it has too few rounds for d."),
        ([A], "a would have earned most."),
    ],
)
def test_a_variant_wins_only_above_all_other_intervals(
    variants: list[dict[str, object]], text: str
):
    assert answer(variants) == text


def test_variants_are_named_as_they_were_given():
    assert name_of({}) == "as it is"
    assert name_of({"method": "nlinucb", "alpha": 0.2}) == "method=nlinucb,alpha=0.2"
