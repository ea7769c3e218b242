"""Fills what a server remembers before its memory is watched: caches are bounded, and no leak."""

import numpy as np

from loadtest.bench import Bench
from loadtest.patient_client import PatientClient
from service.recent_decisions import MAX_RECENT

BATCH = 128  # small: a database that is slow writes them in time, too


def fill_memories(bench: Bench) -> int:
    """Make as many decisions as a server remembers; how many.

    With several workers each remembers its own: those fill during the warm-up of the run.
    """
    rng, made = np.random.default_rng(11), 0
    with PatientClient(bench.service.url) as client:
        while made < MAX_RECENT:
            contexts = rng.standard_normal((BATCH, bench.workload.size)).round(2).tolist()
            rounds = [{"source": {"context": context}} for context in contexts]
            body = {"experiment": bench.workload.experiment, "rounds": rounds}
            made += len(client.post("/select/batch", body)["rounds"])
    return made
