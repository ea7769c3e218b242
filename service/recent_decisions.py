"""The decisions of the last minutes by id: most rewards come soon, and need no look-up then."""

from collections import OrderedDict
from typing import NamedTuple

MAX_RECENT = 65_536


class Owner(NamedTuple):
    """The experiment that a decision belongs to."""

    experiment_id: str
    experiment: str


class RecentDecisions:
    """Remembers the newest decisions of this process; forgetting one costs a read, no more."""

    def __init__(self, capacity: int = MAX_RECENT) -> None:
        self._capacity = capacity
        self._owners: OrderedDict[str, Owner] = OrderedDict()

    def add(self, decision_id: str, owner: Owner) -> None:
        """Remember a decision that was answered."""
        self._owners[decision_id] = owner
        if len(self._owners) > self._capacity:
            self._owners.popitem(last=False)

    def owner(self, decision_id: str) -> Owner | None:
        """Whose decision it is, none when it is not remembered."""
        return self._owners.get(decision_id)
