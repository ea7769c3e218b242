"""What the threads of a service's processes keep for themselves of the C library's memory."""

from pathlib import Path

import psutil

from service.ops.process_tuning import ARENAS
from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import EXPERIMENT, Clients, History, idle_state

EPISODE = int(EXPERIMENT["config"]["episode_length"])
HEAP_BYTES = 64 << 20  # what glibc reserves for a thread's arena, at a multiple of its size


def arenas(process_id: int) -> int:
    """Arenas of a process: the main thread's, and blocks of which a part is used and the rest reserved."""
    ends = {}
    for each in psutil.Process(process_id).memory_maps(grouped=False):
        start, end = (int(address, 16) for address in each.addr.split("-"))
        ends[start, each.perms] = end
    used = [(start, end) for (start, access), end in ends.items() if access == "rw-p"]
    return 1 + sum(
        start % HEAP_BYTES == 0 and ends.get((end, "---p")) == start + HEAP_BYTES
        for start, end in used
    )


async def test_serving_and_training_threads_share_their_arenas(folder: Path, adopt: Adopt[Daband]):
    settings = {"POLL_SECONDS": 0.1}
    server = Server(folder, "--no-trainer", **settings)
    trainer = Daband(folder, "train", "--data-dir", str(folder / "data"), **settings)
    for each in (server, trainer):
        adopt(each)
        each.start()
        if each is server:
            await server.ready()
    async with Clients([server.url], History()) as clients:
        await clients.create_experiment()
        await clients.play(2 * EPISODE)
    assert (await idle_state(server.url, trainer))["episode"] > 0
    for process_id in (server.pid, trainer.pid):
        process = psutil.Process(process_id)
        assert arenas(process_id) <= ARENAS, f"{process.cmdline()}: {process.num_threads()} threads"
