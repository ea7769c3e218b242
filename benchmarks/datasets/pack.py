"""Pack tasks into one file that a machine with numpy alone can read.

`python -m benchmarks.datasets.pack OUT.npz NAME…`; `vectors` stands for all tasks of real vectors.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.datasets.packed import write_pack
from benchmarks.datasets.registry import VECTORS, load


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the named tasks from the data folder and write the pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--root", type=Path, help="data folder; default DABAND_DATA or the cache")
    options = parser.parse_args(arguments)
    chosen = [task for name in options.names for task in (VECTORS if name == "vectors" else [name])]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_pack(options.out, (load(name, options.root) for name in chosen))
    print(f"{options.out}: {len(chosen)} tasks, {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
