"""A process of its own that appends: `python -m … URL EXPERIMENT_ID COUNT`.

Prints the keys of the events that were answered as durable.
"""

import asyncio
import sys

from service.records import EventKind, NewEvent, uuid7
from tests.support.storage import opened_log

CALLERS = 4


async def main(url: str, experiment_id: str, count: int) -> None:
    async with opened_log(url) as log:

        async def caller() -> None:
            for _ in range(count // CALLERS):
                event = NewEvent(experiment_id, EventKind.DECISION, uuid7(), context=b"x" * 64)
                await log.append([event])
                sys.stdout.write(f"{event.event_key}\n")

        await asyncio.gather(*(caller() for _ in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
