"""What the garbage collector looks through, in a process with much that stays."""

import subprocess
import sys

SCRIPT = """
import gc
from service.ops.process_tuning import freeze_gc

past = [[] for _ in range(800_000)]
freeze_gc()
before = gc.get_stats()[2]["collections"]
present = [[] for _ in range(100_000)]
print(gc.get_freeze_count() > len(past), gc.get_stats()[2]["collections"] - before)
"""


def test_what_start_up_made_does_not_put_a_full_collection_off():
    received = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True
    )
    is_frozen, collections = received.stdout.split()
    assert is_frozen == "True"
    assert int(collections) > 0  # 100,000 objects are less than a quarter of 800,000
