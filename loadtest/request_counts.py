"""The outcomes of all requests, by the second in which they were due."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from loadtest.histogram import Histogram
from loadtest.http_client import Answer
from loadtest.traffic import GOOD

REFUSED = "503"


@dataclass
class Second:
    """The requests that were due in one second."""

    due: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and outcome
    good: Histogram = field(default_factory=Histogram)
    refused: Histogram = field(default_factory=Histogram)

    def merge(self, other: "Second") -> None:
        """Add another generator's requests of the same second."""
        self.due += other.due
        self.outcomes.update(other.outcomes)
        self.good.merge(other.good)
        self.refused.merge(other.refused)


@dataclass
class RequestCounts:
    """All requests of a run, of one generator or of several merged."""

    seconds: defaultdict[int, Second] = field(default_factory=lambda: defaultdict(Second))
    lag: Histogram = field(default_factory=Histogram)  # of sending, behind the due time
    sent: int = 0
    refused_without_retry_after: int = 0

    def note_due(self, due: float) -> None:
        """Count a request that is due."""
        self.seconds[int(due)].due += 1

    def note_sent(self, lag_seconds: float) -> None:
        """Count a sent request and its lag behind the due time."""
        self.sent += 1
        self.lag.record(lag_seconds)

    def note_answer(self, due: float, now: float, kind: str, answer: Answer) -> None:
        """Count the outcome of a request; times are in seconds from the start."""
        second = self.seconds[int(due)]
        second.outcomes[kind, answer.outcome] += 1
        if answer.outcome in GOOD:
            second.good.record(now - due)
        elif answer.outcome == REFUSED:
            second.refused.record(now - due)
            self.refused_without_retry_after += not answer.has_retry_after

    def merge(self, other: "RequestCounts") -> None:
        """Add another generator's requests."""
        for number, second in other.seconds.items():
            self.seconds[number].merge(second)
        self.lag.merge(other.lag)
        self.sent += other.sent
        self.refused_without_retry_after += other.refused_without_retry_after

    def during(self, start: int, end: int) -> Second:
        """The seconds from `start` to before `end` as one."""
        whole = Second()
        for number in range(start, end):
            if number in self.seconds:
                whole.merge(self.seconds[number])
        return whole


def good_count(second: Second) -> int:
    """Requests that got what they asked for."""
    return sum(n for (_, outcome), n in second.outcomes.items() if outcome in GOOD)


def outcome_counts(second: Second) -> dict[str, int]:
    """Requests by status, or by what went wrong instead."""
    counts: Counter[str] = Counter()
    for (_, outcome), number in second.outcomes.items():
        counts[outcome] += number
    return dict(sorted(counts.items()))
