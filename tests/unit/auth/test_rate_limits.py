from service.auth.key_ring import TokenBucket
from service.auth.keys import RateLimit


def test_a_burst_passes_then_the_rate_holds():
    bucket = TokenBucket(RateLimit(2, 3), now=100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert [bucket.take(100.5) for _ in range(2)] == [0, 0.5]
    assert bucket.take(100.75) == 0.25


def test_in_the_long_run_no_more_than_the_rate_passes():
    bucket = TokenBucket(RateLimit(10, 5), now=0.0)
    passed = sum(bucket.take(step / 100) == 0 for step in range(1000))
    assert 100 <= passed <= 105


def test_waiting_fills_it_up_to_the_burst_and_no_further():
    bucket = TokenBucket(RateLimit(2, 3), now=0.0)
    assert [bucket.take(1e6) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_clock_that_goes_back_gives_nothing():
    bucket = TokenBucket(RateLimit(1, 1), now=100.0)
    assert bucket.take(100.0) == 0
    assert bucket.take(50.0) == 1
    assert bucket.take(51.0) == 0


def test_no_rate_is_no_limit():
    bucket = TokenBucket(RateLimit(0, 1), now=0.0)
    assert not any(bucket.take(0.0) for _ in range(1000))
