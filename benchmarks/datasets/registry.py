"""Every task by name."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from benchmarks.datasets import (
    gdsc,
    office_caltech,
    pancreas,
    picture_folders,
    simulated,
    students,
    warfarin,
)
from benchmarks.datasets.digits import changed, mnist
from benchmarks.datasets.folder import DataFolder, default_root
from benchmarks.datasets.packed import packed_names, read_packed
from benchmarks.datasets.task import TransferTask

Loader = Callable[[str, DataFolder], TransferTask]


def _load_rendered(name: str, folder: DataFolder) -> TransferTask:
    # Draws with Pillow, which machines that read packs alone need not have.
    from benchmarks.datasets.digits.rendered import load_rendered  # noqa: PLC0415

    return load_rendered(name, folder)


_VECTORS: dict[str, Loader] = {
    **dict.fromkeys(office_caltech.NAMES, office_caltech.load_office_caltech),
    **dict.fromkeys(pancreas.NAMES, pancreas.load_pancreas),
    **dict.fromkeys(warfarin.NAMES, warfarin.load_warfarin),
    **dict.fromkeys(gdsc.NAMES, gdsc.load_gdsc),
    **dict.fromkeys(students.NAMES, students.load_students),
}
_IMAGES: dict[str, Loader] = {
    **dict.fromkeys(mnist.NAMES, mnist.load_digit),
    **dict.fromkeys(changed.NAMES, changed.load_changed),
    "rendered-digits": _load_rendered,
    **dict.fromkeys(picture_folders.NAMES, picture_folders.load_pictures),
}
_LOADERS: dict[str, Loader] = {**_IMAGES, **_VECTORS}
VECTORS, IMAGES, STUDENTS = tuple(_VECTORS), tuple(_IMAGES), students.NAMES
# What negative transfer is measured on. The students came later and only report.
PAIRS = (*(name for name in VECTORS if name not in STUDENTS), *simulated.NAMES)
# The data sets that recipes are chosen on, beside simulated worlds with even seeds (docs/results/ledger.md).
_CHOOSING = ("office-caltech", "gdsc", "rendered-digits", *changed.NAMES)


class Part(StrEnum):
    """Whether a task takes part in choosing recipes, or only reports them."""

    CHOOSE = "choose"
    REPORT = "report"


def part_of(name: str) -> Part:
    """The part of the data that a task belongs to."""
    if name in simulated.NAMES:
        is_choosing = int(name.rpartition("-")[2]) % 2 == 0
    else:
        is_choosing = name.partition(":")[0] in _CHOOSING
    return Part.CHOOSE if is_choosing else Part.REPORT


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
