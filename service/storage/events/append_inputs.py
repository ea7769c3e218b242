"""What an append reads before it plans, on either database."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from service.records import EventKind, Phase, Status, utc_now
from service.storage.archive.request_keys import hashed
from service.storage.events.append_plan import AppendCall, LockedExperiment, RequestKey


class Lookups(NamedTuple):
    """The experiments to lock, in that order, and the events that the calls may repeat or refer to."""

    experiment_ids: list[str]
    keys: Mapping[EventKind, list[str]]
    requests: Mapping[str, list[str]]  # request ids by experiment id


def lookups(calls: Sequence[AppendCall]) -> Lookups:
    """What to read for these calls; an id that was just made is in no log."""
    keys: defaultdict[EventKind, set[str]] = defaultdict(set)
    requests: defaultdict[str, set[str]] = defaultdict(set)
    for event in (event for call in calls for event in call.events):
        if not event.has_new_key:
            keys[event.kind].add(event.event_key)
        if event.kind is EventKind.REWARD:
            keys[EventKind.DECISION].add(event.event_key)
        if event.request_id is not None and not event.has_new_request:
            requests[event.experiment_id].add(event.request_id)
    return Lookups(
        sorted({call.experiment_id for call in calls}),
        {kind: sorted(some) for kind, some in keys.items()},
        {experiment_id: sorted(some) for experiment_id, some in requests.items()},
    )


def locked(rows: Iterable[Sequence[Any]]) -> tuple[list[LockedExperiment], datetime]:
    """Experiments that are locked until the transaction ends, and the database's time.

    From rows of id, phase, status, head, epoch, archived offset and the time.
    """
    found: list[LockedExperiment] = []
    moments: list[datetime] = []
    for experiment_id, phase, status, head, epoch, archived, moment in rows:
        found.append(
            LockedExperiment(experiment_id, Phase(phase), Status(status), head, epoch, archived)
        )
        moments.append(moment)
    return found, max(moments, default=utc_now())


def archived_lookups(
    wanted: Lookups, experiments: Iterable[LockedExperiment]
) -> Iterator[tuple[int, dict[int, RequestKey]]]:
    """For each experiment with archived rounds its key, and the named requests by theirs."""
    for each in experiments:
        request_ids = wanted.requests.get(each.experiment_id, [])
        if each.archived_offset and request_ids:
            yield (
                hashed(each.experiment_id),
                {hashed(name): (each.experiment_id, name) for name in request_ids},
            )
