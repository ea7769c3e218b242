"""The decisions of the last minutes by id: most rewards come soon, and need no look-up then."""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

MAX_RECENT = 65_536


class Owner(NamedTuple):
    """The experiment that a decision belongs to."""

    experiment_id: str
    experiment: str


class RecentDecisions:
    """Remembers the newest decisions of this process; forgetting one costs a read, no more.

    All memory is taken at the start, a megabyte. A dictionary that forgets its oldest entry would
    hold 18 and be made anew again and again, each time leaving holes in the process's memory.
    Each id has one place, where a newer one may replace it, and is known by its hash of 64 bits;
    should two ever be equal, the log still refuses a reward for a decision that it does not hold.
    """

    def __init__(self, capacity: int = MAX_RECENT) -> None:
        self._hashes = array("q", bytes(8 * capacity))
        self._owners: list[Owner | None] = [None] * capacity
        self._shared: dict[Owner, Owner] = {}  # one object an experiment, not one a decision

    def add(self, decision_ids: Iterable[str], owner: Owner) -> None:
        """Remember decisions that were answered."""
        owner = self._shared.setdefault(owner, owner)
        hashes, owners = self._hashes, self._owners
        capacity = len(hashes)
        for decision_id in decision_ids:
            key = hash(decision_id)
            place = key % capacity
            hashes[place] = key
            owners[place] = owner

    def owner(self, decision_id: str) -> Owner | None:
        """Whose decision it is, none when it is not remembered."""
        key = hash(decision_id)
        place = key % len(self._hashes)
        return self._owners[place] if self._hashes[place] == key else None
