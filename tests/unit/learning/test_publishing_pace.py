import pytest

from service.learning.resources import SMALL_BYTES, PublishingPace

SMALL, LARGE = SMALL_BYTES, SMALL_BYTES + 1


def test_publishing_takes_its_share_of_the_time():
    pace = PublishingPace(fraction=0.5)
    pace.note(100.0, SMALL, 0.2)
    assert pace.seconds_to_free(100.0, SMALL) == pytest.approx(0.4)
    assert pace.seconds_to_free(100.5, SMALL) < 0.0


def test_small_snapshots_do_not_wait_for_large_ones():
    pace = PublishingPace(fraction=0.1)
    pace.note(100.0, LARGE, 2.0)
    assert pace.seconds_to_free(100.0, SMALL) < 0.0


def test_small_snapshots_wait_for_a_slow_one_only_briefly():
    pace = PublishingPace(fraction=0.1)
    pace.note(100.0, SMALL, 30.0)
    assert pace.seconds_to_free(100.0, SMALL) == pytest.approx(0.5)


def test_large_snapshots_share_half_of_the_time():
    pace = PublishingPace(fraction=0.1)
    pace.note(100.0, LARGE, 2.0)
    assert pace.seconds_to_free(100.0, LARGE) == pytest.approx(40.0)
