"""The verdict: each sign alone makes it worse, with its reason."""

from dataclasses import replace
from typing import Any

import pytest

from model.transfer.verdict import Signs, Word, conditions, judged

GOOD = Signs(
    expected_reward=0.9,
    far_share=0.1,
    share_distance=0.05,
    source_skill=8.0,
    target_rank=5.0,
    independent_members=8,
    unpaid_arms=0,
    held_out_rounds=200,
    target_contexts=500,
)


def test_good_signs_are_aligned_without_reasons():
    found = judged(GOOD)
    assert (found.word, found.reasons) == (Word.ALIGNED, ())
    assert found.as_dict() == {"word": "aligned", "reasons": []}


@pytest.mark.parametrize(
    ("sign", "word", "reason"),
    [
        ({"expected_reward": 0.5}, Word.WEAK, "expected reward on the target is 0.50"),
        ({"expected_reward": 0.2}, Word.DO_NOT_TRUST, "expected reward"),
        ({"far_share": 0.6}, Word.WEAK, "60% of the target contexts are unlike"),
        ({"share_distance": 0.4}, Word.WEAK, "arm priors"),
        ({"source_skill": 2.0}, Word.WEAK, "2.0 standard errors"),
        ({"source_skill": -0.3}, Word.DO_NOT_TRUST, "hardly learned"),
        ({"independent_members": 1}, Word.WEAK, "one model decides alone"),
        ({"unpaid_arms": 2}, Word.WEAK, "never paid arms low, high"),
        ({"target_rank": 1.1}, Word.DO_NOT_TRUST, "collapsed"),
        ({"held_out_rounds": 40}, Word.WEAK, "too little data"),
        ({"target_contexts": 40}, Word.WEAK, "too little data"),
    ],
)
def test_each_sign_counts(sign: dict[str, Any], word: Word, reason: str):
    found = judged(replace(GOOD, **sign), ["low", "high"])
    assert found.word is word
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


def test_the_worst_sign_decides_in_any_order():
    both = judged(replace(GOOD, target_rank=1.0, held_out_rounds=1))
    assert both.word is Word.DO_NOT_TRUST
    assert len(both.reasons) == 2
    assert judged(replace(GOOD, source_skill=0.0, target_contexts=1)).word is Word.DO_NOT_TRUST


def test_a_reason_names_a_few_arms():
    one = judged(replace(GOOD, unpaid_arms=1), ["low"])
    assert one.reasons == ("the source never paid arm low",)
    many = judged(replace(GOOD, unpaid_arms=7), list("abcdefg"))
    assert many.reasons == ("the source never paid arms a, b, c, d, e and 2 more",)


def test_conditions_name_what_no_unlabeled_data_can_rule_out():
    mixes, contexts = conditions(GOOD)
    assert "mix of best arms" in mixes
    assert "equal contexts" in contexts
    far = conditions(replace(GOOD, far_share=0.8, unpaid_arms=1), ["low"])
    assert "80%" in far[1]
    assert far[2].startswith("arm low, which the source never paid")
