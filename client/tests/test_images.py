"""Images of every kind become what the service reads, without pillow."""

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from daband_client import Client, ContextError, Limits, Round
from daband_client.contexts import is_row, many
from daband_client.images import files, is_image
from scripted import Script

PNG = b"\x89PNG\r\n\x1a\n and so on"
JPEG = b"\xff\xd8\xff\xe0 and so on"


class Picture:
    """What an image of pillow is, to the client."""

    def getbands(self) -> tuple[str, ...]:
        return ("R", "G", "B")

    def save(self, stream: BytesIO, kind: str) -> None:
        assert kind == "PNG"
        stream.write(PNG)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.png", "day 2/c.jpg", ".hidden.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(JPEG if name.endswith("jpg") else PNG)
    return tmp_path


def decided(count: int) -> httpx.Response:
    decision: dict[str, Any] = {"arm": "low", "probabilities": {}, "mean": 0, "bonus": 0}
    decision |= {"transfer_confidence": 0, "abstained": False}
    body = {"experiment": "x", "policy_version": 1, "encoder_version": 1}
    return httpx.Response(200, json={**body, "decisions": [decision] * count})


def selected(count: int) -> httpx.Response:
    each = {"experiment": "x", "request_id": "r", "policy_version": 1}
    return httpx.Response(200, json={"experiment": "x", "rounds": [each] * count})


def stored(count: int) -> httpx.Response:
    body = {"experiment": "x", "request_id": "u", "status": "created", "offset": 1}
    return httpx.Response(201, json={**body, "contexts": count})


def test_an_image_is_bytes_a_path_or_of_pillow(folder: Path) -> None:
    for given in (PNG, JPEG, bytearray(PNG), folder / "a.png", Picture()):
        assert is_image(given)
    for other in (b"\0\0\0\0", [1.0], {"image": PNG}, "a.png"):
        assert not is_image(other)


def test_rounds_carry_the_bytes_of_images(folder: Path) -> None:
    script = Script(*[httpx.Response(200, json=msgspec.to_builtins(ANSWER))] * 5)
    with Client("http://test", transport=script) as client:
        for given in (PNG, folder / "b.png", Picture(), {"image": PNG}, {"image": Picture()}):
            client.select("x", Round(source=given))
    assert [each["source"] for each in script.bodies()] == [{"context": {"image": PNG}}] * 5


def test_images_by_arm_are_no_row_of_a_table(folder: Path) -> None:
    by_arm = {"low": folder / "a.png", "high": Picture()}
    assert not is_row(by_arm)
    script = Script(httpx.Response(200, json=msgspec.to_builtins(ANSWER)))
    with Client("http://test", transport=script) as client:
        client.select("x", Round(target=by_arm))
    (body,) = script.bodies()
    assert body["target"] == {"contexts": {"low": {"image": PNG}, "high": {"image": PNG}}}


def test_a_request_has_as_many_images_as_any_size_allows(folder: Path) -> None:
    script = Script(decided(2), decided(1), selected(1), selected(1))
    with Client("http://test", transport=script, limits=Limits(images=2)) as client:
        assert len(client.target_select("x", folder).decisions) == 3
        assert len(client.select_many("x", [Round(PNG, JPEG), Round(PNG, JPEG)])) == 2
    first, second, *rounds = script.bodies()
    sent = [each["image"] for each in (*first["contexts"], *second["contexts"])]
    assert sent == [PNG, PNG, JPEG]
    assert [len(each["rounds"]) for each in rounds] == [1, 1]


def test_a_folder_is_uploaded_as_lines_and_an_archive_as_it_is(folder: Path) -> None:
    archive = folder / "all.zip"
    archive.write_bytes(b"PK")
    archive = archive.rename(folder.parent / "all.zip")
    script = Script(stored(3), stored(3))
    with Client("http://test", transport=script) as client:
        client.upload_contexts("x", folder)
        client.upload_contexts("x", archive)
    lines, whole = script.requests
    found = [msgspec.json.decode(line)["image"] for line in lines.content.splitlines()]
    assert [base64.b64decode(each) for each in found] == [PNG, PNG, JPEG]
    assert (whole.content, whole.headers["content-type"]) == (b"PK", "application/zip")


def test_files_are_named_when_they_cannot_be_sent(tmp_path: Path) -> None:
    with Client("http://test", transport=Script()) as client:
        for path, reason in (
            (tmp_path / "nothing.png", "No such file"),
            (tmp_path / "table.csv", "is no image"),
            (tmp_path, "has no image"),
        ):
            with pytest.raises(ContextError, match=reason):
                client.upload_contexts("x", path)
        with pytest.raises(ContextError, match="can be uploaded"):
            client.target_select("x", tmp_path / "all.zip")


def test_the_order_is_that_of_the_names(folder: Path) -> None:
    names = [each.relative_to(folder).as_posix() for each in files(folder)]
    assert names == ["a.png", "b.png", "day 2/c.jpg"]
    assert len(many(folder)) == 3  # type: ignore[arg-type]  # a list


ANSWER = {"experiment": "x", "request_id": "r", "policy_version": 1}
