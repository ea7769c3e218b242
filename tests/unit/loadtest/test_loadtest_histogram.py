"""Percentiles to three digits."""

import math

import numpy as np
import pytest

from loadtest.histogram import Histogram, merged

LATENCIES = np.random.default_rng(1).lognormal(mean=-5, sigma=2, size=20_000)
SHARES = (0.001, 0.5, 0.9, 0.99, 0.999, 0.9999)


def histogram_of(values: np.ndarray) -> Histogram:
    histogram = Histogram()
    for value in values.tolist():
        histogram.record(value)
    return histogram


@pytest.mark.parametrize("share", SHARES)
def test_a_percentile_is_never_too_small_and_too_large_by_a_thousandth_at_most(share: float):
    exact = np.sort(LATENCIES)[math.ceil(share * len(LATENCIES)) - 1]
    found = histogram_of(LATENCIES).quantile(share)
    # Latencies are rounded to a microsecond before they are counted.
    assert exact - 1e-6 <= found <= exact * (1 + 1 / 1024) + 1e-6


@pytest.mark.parametrize("microseconds", [0, 1, 2047, 2048, 2049, 4095, 4096, 123_456_789])
def test_one_value_is_its_own_percentile(microseconds: int):
    assert histogram_of(np.array([microseconds / 1e6])).quantile(0.5) == microseconds / 1e6


def test_buckets_do_not_overlap_and_leave_no_gap():
    values = np.arange(1, 20_000) / 1e6
    histogram = histogram_of(values)
    for share in np.linspace(0.01, 1, 50):
        exact = values[math.ceil(share * len(values)) - 1]
        assert exact <= histogram.quantile(share) <= exact * (1 + 1 / 1024)


def test_merged_histograms_are_the_histogram_of_all():
    parts = merged(map(histogram_of, np.split(LATENCIES, 4)))
    whole = histogram_of(LATENCIES)
    assert parts.counts == whole.counts
    assert parts.total == len(LATENCIES)
    assert parts.summary() == whole.summary()
    assert parts.maximum == pytest.approx(LATENCIES.max(), abs=1e-6)


def test_nothing_counted_has_no_percentiles():
    assert Histogram().summary() == {}
    assert math.isnan(Histogram().quantile(0.5))


def test_an_early_answer_counts_as_none():
    assert histogram_of(np.array([-0.001])).quantile(1) == 0
