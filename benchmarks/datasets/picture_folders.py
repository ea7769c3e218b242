"""VisDA17 and S2RDA49: synthetic to real pictures in folders by class, as they are published.

VisDA17: `visda17/train` (synthetic) and `visda17/validation` (real), each a folder a class with an
`image_list.txt` of `CLASS/FILE LABEL` lines. S2RDA49: `S2RDA-49/synthetic` and `S2RDA-49/real`, each
a folder a class without a list.

As many pictures as the paper plays rounds are drawn from each domain, always the same ones, and as
many others of the target for the report. Pictures are read one by one and kept as small squares.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.pictures import open_picture
from benchmarks.datasets.task import Bytes, TransferTask, one_hot
from model.randomness import generator
from model.rounds import Floats

SIDE = 64
SUFFIXES = {".jpg", ".jpeg", ".png"}
LIST = "image_list.txt"


@dataclass(frozen=True, slots=True)
class PictureSet:
    """Where the two domains lie, how many rounds the paper plays, and how to obtain the set."""

    source: str
    target: str
    rounds: int
    origin: str


SETS = {
    "visda17": PictureSet(
        "visda17/train",
        "visda17/validation",
        300 * 64,
        "Unpack http://csr.bu.edu/ftp/visda17/clf/train.tar and validation.tar into visda17/ "
        "(not for passing on).",
    ),
    "s2rda49": PictureSet(
        "S2RDA-49/synthetic",
        "S2RDA-49/real",
        100 * 64,
        "Unpack S2RDA-49 of Tang and Jia (2023, github.com/huitangtang/"
        "On_the_Utility_of_Synthetic_Data; not for passing on) into S2RDA-49/.",
    ),
}
NAMES = tuple(SETS)
Listed = list[tuple[Path, str]]


def load_pictures(name: str, folder: DataFolder) -> TransferTask:
    """A task of colour pictures (n, 64, 64, 3); arms are the class folders in alphabetical order."""
    which = SETS[name]
    source, target = (
        _shuffled(_listed(folder, path, which.origin), name, path)
        for path in (which.source, which.target)
    )
    arms = _arms(name, source, target)
    source_part = _read(source[: which.rounds], arms)
    pool = _read(target[: which.rounds], arms)
    rest = target[which.rounds : 2 * which.rounds]
    test = _read(rest, arms) if rest else pool
    return TransferTask(
        name=name,
        arms=arms,
        exclusive_rewards=True,
        source_contexts=source_part[0],
        source_rewards=source_part[1],
        target_contexts=pool[0],
        target_rewards=pool[1],
        test_contexts=test[0],
        test_rewards=test[1],
    )


def _listed(folder: DataFolder, name: str, origin: str) -> Listed:
    """Every picture of a domain with its class."""
    root = folder.root / name
    if not root.is_dir():
        raise folder.missing(name, origin)
    found = list(_from_list(root) if (root / LIST).is_file() else _from_folders(root))
    if not found:
        raise folder.missing(f"{name}/CLASS/PICTURE", origin)
    for path, _ in found:
        if not path.is_file():
            raise folder.missing(str(path.relative_to(folder.root)), origin)
    return found


def _from_list(root: Path) -> Iterator[tuple[Path, str]]:
    for line in (root / LIST).read_text().splitlines():
        if line.strip():
            name = line.rsplit(maxsplit=1)[0]
            yield root / name, name.partition("/")[0]


def _from_folders(root: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(root.glob("*/**/*")):
        if path.suffix.lower() in SUFFIXES:
            yield path, path.relative_to(root).parts[0]


def _shuffled(listed: Listed, *names: object) -> Listed:
    order = generator(0, "pictures", *names).permutation(len(listed))
    return [listed[i] for i in order]


def _arms(name: str, source: Listed, target: Listed) -> tuple[str, ...]:
    ours, theirs = ({label for _, label in listed} for listed in (source, target))
    if ours != theirs:
        raise ValueError(f"{name}: classes in one domain alone: {', '.join(sorted(ours ^ theirs))}")
    return tuple(sorted(ours))


def _read(listed: Listed, arms: tuple[str, ...]) -> tuple[Bytes, Floats]:
    pictures = np.empty((len(listed), SIDE, SIDE, 3), np.uint8)
    for i, (path, _) in enumerate(listed):
        pictures[i] = open_picture(path, SIDE)
    classes = np.array([arms.index(label) for _, label in listed])
    return pictures, one_hot(classes, len(arms))
