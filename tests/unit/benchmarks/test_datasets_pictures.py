from pathlib import Path

import pytest
from PIL import Image

from benchmarks.datasets import picture_folders
from benchmarks.datasets.folder import DataFolder, MissingDataError
from benchmarks.datasets.picture_folders import SETS, SIDE, load_pictures

CLASSES = ("aeroplane", "bus", "truck")


@pytest.fixture
def folder(tmp_path) -> DataFolder:
    return DataFolder(tmp_path)


def save(path: Path, grey: int) -> None:
    """A picture of one grey, wider than high."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (80, 50), (grey, grey, grey)).save(path)


def grey_of(label: int, i: int) -> int:
    return 80 * label + 10 * i


def write_visda17(folder: DataFolder) -> None:
    """Four synthetic png and three real jpg pictures a class, each domain with its list."""
    for split, suffix, count in (("train", "png", 4), ("validation", "jpg", 3)):
        lines = []
        for label, name in enumerate(CLASSES):
            for i in range(count):
                relative = f"{name}/{split}_{i}.{suffix}"
                save(folder.root / "visda17" / split / relative, grey_of(label, i))
                lines.append(f"{relative} {label}\n")
        (folder.root / "visda17" / split / "image_list.txt").write_text("".join(lines))


def write_s2rda49(folder: DataFolder) -> None:
    for domain, suffix, count in (("synthetic", "png", 4), ("real", "JPEG", 3)):
        for label, name in enumerate(CLASSES):
            for i in range(count):
                relative = f"S2RDA-49/{domain}/{name}/{domain}_{i}.{suffix}"
                save(folder.root / relative, grey_of(label, i))
    (folder.root / "S2RDA-49/real/README.txt").write_text("no picture")


WRITERS = {"visda17": write_visda17, "s2rda49": write_s2rda49}


def labels_in(contexts) -> list[int]:
    """The class that was written with the grey of each picture; jpg may miss it by a little."""
    return [round(float(grey)) for grey in (contexts.mean(axis=(1, 2, 3)) - 10) / 80]


@pytest.mark.parametrize("name", SETS)
def test_published_layout_makes_the_task(folder, name):
    WRITERS[name](folder)
    task = load_pictures(name, folder)
    assert task.arms == CLASSES
    assert task.source_contexts.shape == (12, SIDE, SIDE, 3)
    assert task.test_contexts.shape == (9, SIDE, SIDE, 3)
    assert task.context_shape == (3, SIDE, SIDE)
    for contexts, rewards in (
        (task.source_contexts, task.source_rewards),
        (task.target_contexts, task.target_rewards),
    ):
        assert labels_in(contexts) == rewards.argmax(axis=1).tolist()
    greys = sorted(task.source_contexts[:, 0, 0, 0].tolist())
    assert greys == sorted(grey_of(label, i) for label in range(3) for i in range(4))


@pytest.mark.parametrize("name", SETS)
def test_the_pool_and_the_report_have_different_pictures(folder, name, monkeypatch):
    WRITERS[name](folder)
    monkeypatch.setitem(
        SETS, name, picture_folders.PictureSet(SETS[name].source, SETS[name].target, 5, "")
    )
    task = load_pictures(name, folder)
    assert [len(task.source_contexts), len(task.target_contexts), len(task.test_contexts)] == [
        5,
        5,
        4,
    ]
    pool, test = (
        {c.tobytes() for c in part} for part in (task.target_contexts, task.test_contexts)
    )
    assert not pool & test
    assert load_pictures(name, folder).equals(task)


def test_the_list_decides_where_there_is_one(folder):
    write_visda17(folder)
    save(folder.root / "visda17/train/bus/not_listed.png", 0)
    assert len(load_pictures("visda17", folder).source_contexts) == 12


def test_the_paper_budget():
    assert {name: which.rounds for name, which in SETS.items()} == {
        "visda17": 19_200,
        "s2rda49": 6_400,
    }


@pytest.mark.parametrize("name", SETS)
def test_a_missing_set_says_what_to_put_where(folder, name):
    with pytest.raises(MissingDataError) as caught:
        load_pictures(name, folder)
    assert str(folder.root / SETS[name].source) in str(caught.value)
    assert SETS[name].origin in str(caught.value)


def test_an_empty_folder_is_missing_its_pictures(folder):
    write_s2rda49(folder)
    for path in (folder.root / "S2RDA-49/real").glob("*/*"):
        path.unlink()
    with pytest.raises(MissingDataError, match="S2RDA-49/real/CLASS/PICTURE is missing"):
        load_pictures("s2rda49", folder)


def test_a_listed_picture_that_is_not_there_is_named(folder):
    write_visda17(folder)
    (folder.root / "visda17/validation/bus/validation_1.jpg").unlink()
    with pytest.raises(MissingDataError, match=r"bus/validation_1\.jpg is missing"):
        load_pictures("visda17", folder)


def test_a_damaged_picture_is_named(folder):
    write_s2rda49(folder)
    (folder.root / "S2RDA-49/real/bus/real_0.JPEG").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"real_0.JPEG is not a readable picture"):
        load_pictures("s2rda49", folder)


def test_a_class_of_one_domain_alone_is_refused(folder):
    write_s2rda49(folder)
    save(folder.root / "S2RDA-49/real/whale/1.png", 3)
    with pytest.raises(ValueError, match="one domain alone: whale"):
        load_pictures("s2rda49", folder)
