"""Images of folders and zip archives: the same in the same order, within bounds."""

import stat
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_STORED, ZipFile, ZipInfo

import pytest

from service.images import files
from service.images.files import ImageFileError, images_in, images_in_zip, is_images
from tests.support.images import colours, png, written, zipped

IMAGES = {f"{name}.png": png(each) for name, each in zip("bac", colours(3), strict=True)}
NESTED = {**IMAGES, "day 2/d.jpg": b"\xff\xd8\xff", "day 2/E.PNG": b"\x89PNG"}
HIDDEN = {".DS_Store": b"x", "__MACOSX/._a.png": b"x", "day 2/.cache/a.txt": b"x"}
HIDDEN |= {"Thumbs.db": b"x", "day 2/desktop.ini": b"x"}


def refusal(content: bytes) -> str:
    with pytest.raises(ImageFileError) as caught:
        list(images_in_zip(BytesIO(content)))
    return str(caught.value)


def entry(name: str, content: bytes = b"x", mode: int = 0) -> bytes:
    stream, info = BytesIO(), ZipInfo(name)
    info.external_attr = mode << 16
    info.filename = name  # as it is, whatever the system's slashes are
    with ZipFile(stream, "w") as archive:
        archive.writestr(info, content)
    return stream.getvalue()


def test_a_folder_and_its_archive_hold_the_same_in_the_order_of_names(tmp_path: Path):
    folder = written(tmp_path / "images", {**NESTED, **HIDDEN})
    found = list(images_in(folder))
    assert found == [(name, NESTED[name]) for name in sorted(NESTED)]
    for compression in (ZIP_STORED, 8):
        archive = tmp_path / "images.ZIP"
        archive.write_bytes(zipped({**NESTED, **HIDDEN}, compression))
        assert list(images_in(archive)) == found


def test_a_single_image_has_its_name(tmp_path: Path):
    path = written(tmp_path, IMAGES) / "a.png"
    assert list(images_in(path)) == [("a.png", IMAGES["a.png"])]


def test_images_are_known_by_their_names(tmp_path: Path):
    assert is_images(tmp_path)
    assert is_images(Path("a.JPEG"))
    assert is_images(Path("a.zip"))
    assert not is_images(Path("a.npy"))


def test_other_files_are_named(tmp_path: Path):
    folder = written(tmp_path / "images", {**IMAGES, "labels.csv": b"a,b"})
    with pytest.raises(ImageFileError, match=r"labels\.csv: Expected the name of an image"):
        list(images_in(folder))
    assert "labels.csv" in refusal(zipped({**IMAGES, "labels.csv": b"a,b"}))


def test_empty_folders_and_archives_are_refused(tmp_path: Path):
    with pytest.raises(ImageFileError, match="no image"):
        list(images_in(tmp_path))
    assert "no image" in refusal(zipped({}))
    assert "no image" in refusal(zipped(HIDDEN))


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "x/../../a.png", "..\\a.png", "C:\\a.png"])
def test_entries_that_point_out_of_the_archive_are_refused(name: str):
    assert "inside the archive" in refusal(entry(name))


def test_links_are_refused():
    assert "inside the archive" in refusal(entry("a.png", b"/etc/passwd", stat.S_IFLNK | 0o777))


def test_what_is_no_archive_is_refused():
    whole = zipped(IMAGES)
    for content in (b"", b"PK", png(colours(1)[0]), whole[:-30], whole[200:]):
        assert "zip archive" in refusal(content) or "damaged" in refusal(content)


def test_a_damaged_entry_is_named():
    content = bytearray(zipped({"a.png": bytes(500)}, ZIP_STORED))
    content[100] ^= 1
    assert refusal(bytes(content)).startswith("a.png")


def test_encrypted_and_strangely_packed_entries_are_refused():
    content = zipped({"a.png": b"x"})
    directory = content.index(b"PK\x01\x02")
    locked = bytearray(content)
    locked[directory + 8] |= 1
    assert "encrypted" in refusal(bytes(locked))
    assert "stored or deflated" in refusal(zipped({"a.png": b"x"}, ZIP_BZIP2))


def test_an_entry_that_unpacks_to_too_much_is_refused_unread():
    assert "16 MiB" in refusal(zipped({"a.png": bytes(17 << 20)}))


def test_no_more_is_unpacked_than_the_directory_claims():
    content = bytearray(zipped({"a.png": bytes(1 << 20)}))
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (100).to_bytes(4, "little")
    assert "damaged" in refusal(bytes(content))


def test_archives_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 100)
    assert "unpacked" in refusal(zipped({"a.png": bytes(60), "b.png": bytes(60)}))
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    assert "entries" in refusal(zipped(IMAGES))
    monkeypatch.setattr(files, "MAX_DIRECTORY_BYTES", 64)
    assert "directory" in refusal(zipped({"a.png": b"", "b.png": b""}))
