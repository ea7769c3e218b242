"""Every task by name."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.datasets import (
    digit,
    gdsc,
    office_caltech,
    pancreas,
    picture_folders,
    simulated,
    warfarin,
)
from benchmarks.datasets.folder import DataFolder, default_root
from benchmarks.datasets.packed import packed_names, read_packed
from benchmarks.datasets.task import TransferTask

Loader = Callable[[str, DataFolder], TransferTask]
_VECTORS: dict[str, Loader] = {
    **dict.fromkeys(office_caltech.NAMES, office_caltech.load_office_caltech),
    **dict.fromkeys(pancreas.NAMES, pancreas.load_pancreas),
    **dict.fromkeys(warfarin.NAMES, warfarin.load_warfarin),
    **dict.fromkeys(gdsc.NAMES, gdsc.load_gdsc),
}
_LOADERS: dict[str, Loader] = {
    **dict.fromkeys(digit.NAMES, digit.load_digit),
    **dict.fromkeys(picture_folders.NAMES, picture_folders.load_pictures),
    **_VECTORS,
}
VECTORS = tuple(_VECTORS)
# What negative transfer is measured on.
PAIRS = (*VECTORS, *simulated.NAMES)


def names() -> tuple[str, ...]:
    """All tasks that `load` knows."""
    return (*_LOADERS, *simulated.NAMES)


def load(name: str, root: Path | str | None = None) -> TransferTask:
    """A task from `root` (default: `DABAND_DATA`, or the user's cache).

    Simulated tasks need no data. A pack (an npz file directly in `root`) wins over the files of
    the data sets.
    """
    if name in simulated.NAMES:
        return simulated.simulated_task(name)
    if name not in _LOADERS:
        raise ValueError(f"there is no task {name}; tasks: {', '.join(names())}")
    folder = Path(root) if root else default_root()
    for pack in sorted(folder.glob("*.npz")):
        if name in packed_names(pack):
            return read_packed(pack, name)
    return _LOADERS[name](name, DataFolder(folder))
