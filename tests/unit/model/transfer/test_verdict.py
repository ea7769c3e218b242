"""The verdict: each sign alone makes it worse, with its reason."""

from dataclasses import replace
from typing import Any

import pytest

from model.transfer.verdict import Signs, Word, judged

GOOD = Signs(
    domain_accuracy=0.52,
    raw_domain_accuracy=0.55,
    share_distance=0.05,
    mean_confidence=0.9,
    source_explained=0.8,
    target_rank=5.0,
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
        ({"domain_accuracy": 0.75}, Word.WEAK, "latents"),
        ({"domain_accuracy": 0.95}, Word.DO_NOT_TRUST, "latents"),
        ({"raw_domain_accuracy": 0.95}, Word.WEAK, "raw contexts"),
        ({"share_distance": 0.4}, Word.WEAK, "arm priors"),
        ({"share_distance": 0.7}, Word.DO_NOT_TRUST, "arm priors"),
        ({"mean_confidence": 0.4}, Word.WEAK, "confidence"),
        ({"mean_confidence": 0.1}, Word.DO_NOT_TRUST, "confidence"),
        ({"source_explained": 0.2}, Word.WEAK, "source itself"),
        ({"source_explained": -3.0}, Word.DO_NOT_TRUST, "0% explained"),
        ({"target_rank": 1.1}, Word.DO_NOT_TRUST, "collapsed"),
        ({"held_out_rounds": 40}, Word.WEAK, "too little data"),
        ({"target_contexts": 40}, Word.WEAK, "too little data"),
    ],
)
def test_each_sign_counts(sign: dict[str, Any], word: Word, reason: str):
    found = judged(replace(GOOD, **sign))
    assert found.word is word
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


def test_the_worst_sign_decides_in_any_order():
    both = judged(replace(GOOD, target_rank=1.0, held_out_rounds=1))
    assert both.word is Word.DO_NOT_TRUST
    assert len(both.reasons) == 2
    assert judged(replace(GOOD, domain_accuracy=0.95, target_contexts=1)).word is Word.DO_NOT_TRUST
