"""Converts decisions to the estimators' columns, in batches of bounded size."""

from collections.abc import Iterable, Iterator

import numpy as np

from model import UNKNOWN_PROPENSITY, Domain, draw_keys
from model.ope import LoggedRounds
from service.formats.records import LoggedDecision, LogHeader
from service.records import CONTEXT_TYPE
from service.unpacking import MAX_PIECE_BYTES

ROUNDS = 4096


class Batches:
    """Groups decisions; rewarded decisions of one domain are rounds.

    Target decisions become unlabeled contexts, in their order among the rounds.
    """

    def __init__(
        self, header: LogHeader, domain: Domain = Domain.SOURCE, size: int = ROUNDS
    ) -> None:
        self.segments: dict[str, int] = {}
        self.passed_count = 0
        self._header = header
        self._domain = domain
        self._size = size
        self._count = 0
        self._widest = 0  # bytes of the contexts of a waiting decision; all arms take as much
        self._rounds: list[LoggedDecision] = []
        self._references: list[int] = []
        self._unlabeled: list[tuple[int, LoggedDecision]] = []
        self._columns = {arm: column for column, arm in enumerate(header.arms)}

    def of(self, decisions: Iterable[LoggedDecision]) -> Iterator[LoggedRounds]:
        for decision in decisions:
            if (batch := self.add(decision)) is not None:
                yield batch
        if (batch := self.rest()) is not None:
            yield batch

    def add(self, decision: LoggedDecision, reference: int | None = None) -> LoggedRounds | None:
        """Add a decision at `reference` (default: its number); returns a batch when it is full."""
        self._count += 1
        if decision.domain is Domain.TARGET and self._domain is Domain.SOURCE:
            self._unlabeled.append((len(self._rounds), decision))
        elif decision.domain is self._domain and decision.reward is not None:
            self._rounds.append(decision)
            self._references.append(self._count if reference is None else reference)
        else:
            self.passed_count += 1
        # Target contexts count as well, to bound memory: a batch may have few rounds.
        waiting = len(self._rounds) + len(self._unlabeled)
        self._widest = max(self._widest, len(decision.context))
        if waiting >= self._size or waiting * self._widest >= MAX_PIECE_BYTES:
            return self.rest()
        return None

    def rest(self) -> LoggedRounds | None:
        """The decisions since the last batch."""
        if not self._rounds and not self._unlabeled:
            return None
        made = self._batch(self._rounds, self._unlabeled)
        self._rounds, self._references, self._unlabeled = [], [], []
        self._widest = 0
        return made

    def _batch(
        self, rounds: list[LoggedDecision], unlabeled: list[tuple[int, LoggedDecision]]
    ) -> LoggedRounds:
        n = len(rounds)
        width = len(self._columns) or max((len(each.arms) for each in rounds), default=1)
        eligible = np.zeros((n, width), dtype=np.bool_)
        probabilities = np.zeros((n, width))
        columns = [self._places(each) for each in rounds]
        for row, (decision, places) in enumerate(zip(rounds, columns, strict=True)):
            eligible[row, places] = True
            if decision.probabilities is not None:
                probabilities[row, places] = decision.probabilities
        is_whole = n > 0 and all(each.probabilities is not None for each in rounds)
        codes = [self.segments.setdefault(each.segment, len(self.segments)) for each in rounds]
        chosen = [
            places[each.arms.index(each.arm)] for each, places in zip(rounds, columns, strict=True)
        ]
        return LoggedRounds(
            contexts=self._contexts(rounds, columns, width),
            arms=np.array(chosen, dtype=np.int64),
            rewards=np.array([each.reward for each in rounds], dtype=np.float64),
            propensities=np.array([each.propensity or UNKNOWN_PROPENSITY for each in rounds]),
            eligible=eligible,
            probabilities=probabilities if is_whole else None,
            versions=np.array([each.policy_version for each in rounds], dtype=np.int64),
            references=np.array(self._references, dtype=np.int64),
            keys=draw_keys(each.decision_id for each in rounds),
            segments=np.array(codes, dtype=np.int64),
            unlabeled=self._chosen_contexts([each for _, each in unlabeled]),
            unlabeled_before=np.array([row for row, _ in unlabeled], dtype=np.int64),
        )

    def _places(self, decision: LoggedDecision) -> list[int]:
        if not self._columns:
            return list(range(len(decision.arms)))
        return [self._columns[arm] for arm in decision.arms]

    def _contexts(
        self, rounds: list[LoggedDecision], columns: list[list[int]], width: int
    ) -> np.ndarray:
        shape = self._header.context_shape
        if not self._header.is_per_arm:
            joined = b"".join(each.context for each in rounds)
            return _singles(joined).reshape(-1, *shape)
        contexts = np.zeros((len(rounds), width, *shape), dtype=np.float32)
        for row, (decision, places) in enumerate(zip(rounds, columns, strict=True)):
            contexts[row, places] = _singles(decision.context).reshape(-1, *shape)
        return contexts

    def _chosen_contexts(self, decisions: list[LoggedDecision]) -> np.ndarray:
        shape = self._header.context_shape
        found = np.zeros((len(decisions), *shape), dtype=np.float32)
        for row, decision in enumerate(decisions):
            own = _singles(decision.context).reshape(-1, *shape)
            found[row] = own[decision.arms.index(decision.arm) if self._header.is_per_arm else 0]
        return found


def _singles(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=CONTEXT_TYPE).astype(np.float32)
