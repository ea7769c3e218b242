"""Contexts as PNG and JPEG files, in every call that takes a context."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from PIL import Image

from daband_client import AsyncClient, ProblemError, Round
from service.codec import contexts as codec
from service.deciding import uploads
from service.formats import history, image_tables
from service.images import named
from service.routes import decisions, target
from service.storage import tables
from tests.support.api import DOSES, Api, asgi, running_api
from tests.support.images import as_json, bomb, colours, encoded, numbers, png, written, zipped
from tests.support.storage import sqlite_url
from tests.support.waiting import PATIENCE_SECONDS

SHAPE = [3, 6, 8]
CONFIG = {**DOSES["config"], "hidden_sizes": [4]}
IMAGES: dict[str, Any] = {
    **DOSES,
    "config": CONFIG,
    "context": {"kind": "image", "shape": SHAPE},
}
PIXELS = colours(4)
FILES = [png(each) for each in PIXELS]
NAMED = {f"{row}.png": content for row, content in enumerate(FILES)}
UPLOAD = {"experiment": "doses", "request_id": "u-1"}
PNG, ZIP = {"content-type": "image/png"}, {"content-type": "application/zip"}
LINES = {"content-type": "application/x-ndjson"}
PACKED = {"content-type": "application/msgpack"}


@pytest.fixture
async def empty(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[Api]:
    path = tmp_path / "service.db"
    shutil.copy(sqlite_template, path)
    async with running_api(sqlite_url(path)) as running:
        yield running


@pytest.fixture
async def api(empty: Api) -> Api:
    """The app with an experiment of images of 8 × 6 pixels."""
    answer = await empty.http.post("/experiments", json=IMAGES)
    assert answer.status_code == 201, answer.text
    return empty


async def declared(api: Api, **context: Any) -> httpx.Response:
    body = {**IMAGES, "context": {"kind": "image", **context}}
    return await api.http.post("/experiments", json=body)


async def stored(api: Api) -> np.ndarray:
    """The contexts that the log keeps, (n, *shape)."""
    query = sa.select(tables.events.c.context).order_by(tables.events.c.event_offset)
    found = await api.services.database.read(lambda connection: connection.execute(query))
    contents = b"".join(each.context for each in found if each.context)
    return np.frombuffer(contents, "<f4").reshape(-1, *SHAPE)


def error(answer: httpx.Response) -> tuple[str, str]:
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    (found,) = answer.json()["errors"]
    return found["pointer"], found["detail"]


def select(api: Api, context: Any) -> Any:
    return api.http.post("/select", json={"experiment": "doses", "source": {"context": context}})


async def test_the_declaration_is_shown_and_cannot_change(empty: Api):
    answer = await declared(empty, shape=SHAPE, resize=True)
    context = {"kind": "image", "shape": SHAPE, "per_arm": False, "resize": True}
    assert answer.json()["context"] == answer.json()["declared"]["context"] == context
    assert (await declared(empty, shape=SHAPE)).status_code == 409
    assert (await empty.http.get("/experiments/doses")).json()["context"] == context


@pytest.mark.parametrize(
    ("context", "pointer"),
    [
        ({"shape": [6, 8]}, "#/context/shape"),
        ({"shape": [2, 6, 8]}, "#/context/shape"),
        ({}, "#/context/shape"),
        ({"shape": SHAPE, "columns": [{"name": "age", "type": "numeric"}]}, "#/context/columns"),
        ({"kind": "shared", "shape": SHAPE, "resize": True}, "#/context/resize"),
        ({"kind": "shared", "shape": SHAPE, "per_arm": True}, "#/context/per_arm"),
        ({"kind": "picture", "shape": SHAPE}, "#/context/kind"),
    ],
)
async def test_bad_declarations_are_refused_with_their_place(
    empty: Api, context: dict[str, Any], pointer: str
):
    assert error(await declared(empty, **context))[0] == pointer


async def test_every_way_to_select_stores_the_same_numbers(api: Api):
    in_json = {"context": as_json(FILES[0])}
    body = {"experiment": "doses", "source": in_json}
    batch = {"experiment": "doses", "rounds": [{"source": in_json}, {"target": in_json}]}
    packed = msgspec.msgpack.encode(
        {"experiment": "doses", "source": {"context": {"image": FILES[0]}}}
    )
    plain = {"experiment": "doses", "source": {"context": numbers(PIXELS[0]).tolist()}}
    query = {"experiment": "doses"}
    answers = [
        await api.http.post("/select", json=body),
        await api.http.post("/select/batch", json=batch),
        await api.http.post("/select", content=packed, headers=PACKED),
        await api.http.post("/select", content=FILES[0], headers=PNG, params=query),
        await api.http.post("/select", json=plain),
    ]
    assert [each.status_code for each in answers] == [200] * 5
    assert np.array_equal(await stored(api), np.repeat(numbers(PIXELS[:1]), 6, axis=0))


async def test_target_select_takes_one_many_and_a_bare_file(api: Api):
    body = {"experiment": "doses", "contexts": [as_json(each) for each in FILES], "store": True}
    many = (await api.http.post("/target/select", json=body)).json()["decisions"]
    assert len(many) == 4
    one = {"experiment": "doses", "context": as_json(FILES[2])}
    alone = (await api.http.post("/target/select", json=one)).json()["decisions"]
    bare = await api.http.post(
        "/target/select", content=FILES[2], headers=PNG, params={"experiment": "doses"}
    )
    # Sums over one row and over four may round differently.
    rounded = {name: pytest.approx(many[2][name]) for name in ("mean", "bonus")}
    expected = {**many[2], **rounded}
    assert alone == [expected]
    assert bare.json()["decisions"] == [expected]
    assert np.array_equal(await stored(api), numbers(PIXELS))


async def test_an_upload_is_the_same_as_lines_form_archive_or_numbers(api: Api):
    lines = b"\n".join(msgspec.json.encode(as_json(each)) for each in FILES)
    form = [("image", (name, content, "image/png")) for name, content in NAMED.items()]
    floats = numbers(PIXELS).tobytes()
    octets = {"content-type": "application/octet-stream"}
    answers = [
        await api.http.post("/target/contexts", params=UPLOAD, content=lines, headers=LINES),
        await api.http.post("/target/contexts", params=UPLOAD, files=form),
        await api.http.post("/target/contexts", params=UPLOAD, content=zipped(NAMED), headers=ZIP),
        await api.http.post("/target/contexts", params=UPLOAD, content=floats, headers=octets),
    ]
    assert [each.json()["contexts"] for each in answers] == [4] * 4
    assert [each.status_code for each in answers] == [201, 200, 200, 200]
    assert np.array_equal(await stored(api), numbers(PIXELS))


async def test_jpeg_is_resized_where_the_experiment_says_so(empty: Api):
    assert (await declared(empty, shape=SHAPE, resize=True)).status_code == 201
    large = Image.fromarray(colours(1, 60, 80)[0])
    content = encoded(large, "JPEG")
    assert (await select(empty, as_json(content))).status_code == 200
    assert (await stored(empty)).shape == (1, *SHAPE)


async def test_each_arm_may_have_an_image_of_its_own(empty: Api):
    assert (await declared(empty, shape=SHAPE, per_arm=True)).status_code == 201
    contexts = {"low": as_json(FILES[0]), "high": as_json(FILES[1])}
    body = {"experiment": "doses", "source": {"contexts": contexts}}
    assert (await empty.http.post("/select", json=body)).status_code == 200
    assert np.array_equal(await stored(empty), numbers(PIXELS[:2]))
    contexts["high"] = as_json(b"GIF89a")
    pointer = "#/source/contexts/high/image"
    assert error(await empty.http.post("/select", json=body))[0] == pointer
    both = {"experiment": "doses"}
    bare = await empty.http.post("/select", content=FILES[0], headers=PNG, params=both)
    assert "one arm" in error(bare)[1]
    lone = {**both, "eligible_arms": "mid"}
    bare = await empty.http.post("/select", content=FILES[0], headers=PNG, params=lone)
    assert bare.status_code == 200


@pytest.mark.parametrize(
    ("context", "pointer", "reason"),
    [
        (as_json(png(colours(1, 12, 20)[0])), "#/source/context/image", "20 × 12 pixels"),
        (as_json(bomb()), "#/source/context/image", "50000 × 50000"),
        (as_json(FILES[0][:-40]), "#/source/context/image", "damaged"),
        (as_json(b"no image"), "#/source/context/image", "PNG or JPEG"),
        ({"image": "no base64!"}, "#/source/context/image", "base64"),
        ({"image": 3}, "#/source/context/image", "bytes"),
        ({"png": "YWJj"}, "#/source/context", "Unknown field `png`. Allowed: image."),
        ({}, "#/source/context", "image"),
        ([1.0, 2.0], "#/source/context/0", "array"),
    ],
    ids=["size", "bomb", "cut", "other", "base64", "number", "field", "empty", "numbers"],
)
async def test_bad_images_are_refused_with_their_place(
    api: Api, context: Any, pointer: str, reason: str
):
    found, detail = error(await select(api, context))
    assert found == pointer
    assert reason in detail
    many = {"experiment": "doses", "contexts": [as_json(FILES[0]), context]}
    place = pointer.replace("#/source/context", "#/contexts/1")
    assert error(await api.http.post("/target/select", json=many))[0] == place
    assert len(await stored(api)) == 0


async def test_the_bad_image_of_an_upload_is_named(api: Api):
    bad = {**NAMED, "day 2/5.png": FILES[0][:-40]}
    archive = zipped(bad)
    answer = await api.http.post("/target/contexts", params=UPLOAD, content=archive, headers=ZIP)
    assert error(answer) == ("#/day%202~15.png", "The image is damaged or incomplete.")
    form = [("image", (name, content)) for name, content in bad.items()]
    answer = await api.http.post("/target/contexts", params=UPLOAD, files=form)
    assert error(answer)[0] == "#/4"
    slip = zipped({"../../a.png": FILES[0]})
    answer = await api.http.post("/target/contexts", params=UPLOAD, content=slip, headers=ZIP)
    assert "inside the archive" in error(answer)[1]
    assert len(await stored(api)) == 0


@pytest.mark.parametrize(
    ("header", "content", "reason"),
    [
        ("multipart/form-data", b"", "boundary"),
        ("multipart/form-data; boundary=x", b"nothing", "form"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n" + FILES[0], "last boundary"),
        ("application/zip", b"nothing", "zip archive"),
        ("application/zip", b"", "zip archive"),
    ],
)
async def test_broken_forms_and_archives_are_refused(
    api: Api, header: str, content: bytes, reason: str
):
    headers = {"content-type": header}
    answer = await api.http.post(
        "/target/contexts", params=UPLOAD, content=content, headers=headers
    )
    assert reason in error(answer)[1]


async def test_other_experiments_take_no_images(empty: Api):
    assert (await empty.http.post("/experiments", json=DOSES)).status_code == 201
    query = {"experiment": "doses"}
    for call in (
        empty.http.post("/select", content=FILES[0], headers=PNG, params=query),
        empty.http.post("/target/select", content=FILES[0], headers=PNG, params=query),
        empty.http.post("/target/contexts", content=zipped(NAMED), headers=ZIP, params=UPLOAD),
        empty.http.post("/target/contexts", files={"a": FILES[0]}, params=UPLOAD),
    ):
        assert error(await call)[1] == "This experiment takes no images."


async def test_a_request_holds_no_more_images_than_fit_in_memory(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(codec, "LEAST_IMAGES", 2)
    monkeypatch.setattr(codec, "MAX_IMAGE_NUMBERS", 400)
    side = {"context": as_json(FILES[0])}
    many = {"experiment": "doses", "contexts": [as_json(each) for each in FILES]}
    rounds = {"experiment": "doses", "rounds": [{"source": side, "target": side}] * 2}
    expected = "A request has at most 2 images of this shape."
    assert error(await api.http.post("/target/select", json=many)) == ("#/contexts", expected)
    assert error(await api.http.post("/select/batch", json=rounds)) == ("#/rounds", expected)
    monkeypatch.setattr(uploads, "MAX_SPOOLED_BYTES", 1000)
    answer = await api.http.post("/target/contexts", params=UPLOAD, files={"a": FILES[0]})
    assert answer.status_code == 201
    again = {**UPLOAD, "request_id": "u-2"}
    answer = await api.http.post(
        "/target/contexts", params=again, content=zipped(NAMED), headers=ZIP
    )
    assert answer.status_code == 422
    assert "GiB" in answer.json()["detail"]


async def test_the_images_of_a_request_have_a_budget_of_pixels(
    empty: Api, monkeypatch: pytest.MonkeyPatch
):
    """Three files of 6 × 8 pixels fit; of the fourth nothing is decoded."""
    assert (await declared(empty, shape=SHAPE, resize=True)).status_code == 201
    for route, name in ((decisions, "REQUEST"), (target, "REQUEST"), (target, "UPLOAD")):
        monkeypatch.setattr(route, f"MAX_{name}_PIXELS", 3 * 6 * 8)
    given = [as_json(each) for each in FILES]
    lines = b"\n".join(msgspec.json.encode(each) for each in given)
    form = [("image", (name, content, "image/png")) for name, content in NAMED.items()]

    def batch(images: list[Any]) -> dict[str, Any]:
        rounds = [{"source": {"context": each}} for each in images]
        return {"experiment": "doses", "rounds": rounds}

    send, upload = empty.http.post, "/target/contexts"
    for images, status in ((given[:3], 200), (given, 422)):
        body = {"experiment": "doses", "contexts": images}
        assert (await send("/select/batch", json=batch(images))).status_code == status
        assert (await send("/target/select", json=body)).status_code == status
    refused = {
        "#/rounds/3/source/context/image": await send("/select/batch", json=batch(given)),
        "#/contexts/3/image": await send("/target/select", json=body),
        "#/3/image": await send(upload, params=UPLOAD, content=lines, headers=LINES),
        "#/3": await send(upload, params=UPLOAD, files=form),
        "#/3.png": await send(upload, params=UPLOAD, content=zipped(NAMED), headers=ZIP),
    }
    for pointer, answer in refused.items():
        assert error(answer) == (
            pointer,
            "The images of a request have at most 144 pixels in all: send parts.",
        )
    assert len(await stored(empty)) == 3


async def test_images_are_decoded_beside_other_requests(api: Api, monkeypatch: pytest.MonkeyPatch):
    """The event loop is free while an image is decoded: the decoder waits for another answer."""
    loop = asyncio.get_running_loop()

    def decode(*_: object) -> np.ndarray:
        asked = asyncio.run_coroutine_threadsafe(api.http.get("/experiments/doses"), loop)
        assert asked.result(PATIENCE_SECONDS).status_code == 200
        return numbers(PIXELS[0])

    monkeypatch.setattr(codec, "decoded_image", decode)
    batch = {"experiment": "doses", "rounds": [{"source": {"context": as_json(FILES[0])}}]}
    target = {"experiment": "doses", "contexts": [as_json(FILES[0])]}
    answers = [
        await select(api, as_json(FILES[0])),
        await api.http.post("/select/batch", json=batch),
        await api.http.post("/target/select", json=target),
        await api.http.post("/target/contexts", params=UPLOAD, files={"a": FILES[0]}),
    ]
    assert [each.status_code for each in answers] == [200, 200, 200, 201]


async def test_the_client_takes_paths_bytes_and_images_of_pillow(api: Api, tmp_path: Path):
    folder = written(tmp_path / "images", NAMED)
    archive = tmp_path / "images.zip"
    archive.write_bytes(zipped(NAMED))
    transport = httpx.ASGITransport(asgi(api.app, api.services))
    async with AsyncClient("http://test", transport=transport) as client:
        for given in (FILES[0], folder / "0.png", Image.fromarray(PIXELS[0])):
            await client.select("doses", Round(source=given))
        await client.select_many("doses", [Round(target=each) for each in FILES])
        answered = await client.target_select("doses", folder)
        by_list = await client.target_select("doses", [Image.fromarray(each) for each in PIXELS])
        assert answered.decisions == by_list.decisions
        for given, status in ((folder, "created"), (archive, "already_recorded")):
            found = await client.upload_contexts("doses", given, "u-1")
            assert (found.status, found.contexts) == (status, 4)
        again = await client.create_experiment(**IMAGES)
        assert (again.context.kind, again.context.resize) == ("image", False)
    expected = np.concatenate([numbers(PIXELS[[0, 0, 0]]), numbers(PIXELS), numbers(PIXELS)])
    assert np.array_equal(await stored(api), expected)


PLATES = "file,plate,dose,gain\nday/0.png,7,low,1\n./1.png,7,high,0\nday/0.png,8,mid,\n"
PAST: dict[str, Any] = {"arm": "dose", "reward": "gain", "image": "file", "ignore": "plate"}
ARCHIVE = {"plates.csv": PLATES.encode(), "day/0.png": FILES[0], "1.png": FILES[1]}


async def imported(api: Api, files: dict[str, bytes], **query: Any) -> httpx.Response:
    to = "/experiments/doses/history"
    params = {name: value for name, value in {**PAST, **query}.items() if value is not None}
    return await api.http.post(to, content=zipped(files), params=params, headers=ZIP)


async def test_past_rounds_of_images_are_an_archive_with_one_table(api: Api, tmp_path: Path):
    first = await imported(api, ARCHIVE)
    assert first.status_code == 201, first.text
    assert (first.json()["rows"], first.json()["rewards"]) == (3, 2)
    assert np.array_equal(await stored(api), numbers(PIXELS[[0, 1, 0]]))
    below = {f"lab/{name}": content for name, content in ARCHIVE.items()}
    assert (await imported(api, below)).json()["status"] == "already_recorded"
    (tmp_path / "plates.zip").write_bytes(zipped(ARCHIVE))
    transport = httpx.ASGITransport(asgi(api.app, api.services))
    async with AsyncClient("http://test", transport=transport) as client:
        again = await client.import_history("doses", tmp_path / "plates.zip", **PAST)
        assert (again.status, again.sha256) == ("already_recorded", first.json()["sha256"])
        less = zipped({name: content for name, content in ARCHIVE.items() if name != "1.png"})
        with pytest.raises(ProblemError, match=r"#/1/file row 2: \./1\.png: There is no such file"):
            await client.import_history("doses", less, media="application/zip", **PAST)
    (entry, *_) = (await api.http.get("/experiments/doses/log")).json()["entries"]
    assert entry["row_id"] == "day/0.png"


WRONG: list[tuple[dict[str, bytes], dict[str, Any], str, str]] = [
    ({"1.png": FILES[1][:60]}, {}, "#/1/file", "./1.png: The image is damaged or incomplete."),
    ({"1.png": png(np.zeros((5, 8, 3), np.uint8))}, {}, "#/1/file", "has 8 × 5 pixels"),
    ({"1.png": bomb()}, {}, "#/1/file", "50000 × 50000 pixels"),
    ({"plates.csv": PLATES.replace("./1", "../1").encode()}, {}, "#/1/file", "no such file"),
    ({"plates.csv": PLATES.replace("./1.png", "").encode()}, {}, "#/1/file", "may not be missing"),
    ({"plates.csv": PLATES.replace("1.png", "1.gif").encode()}, {}, "#/1/file", "name of an image"),
    ({"plates.csv": PLATES.replace("high", "top").encode()}, {}, "#/1/dose", "not declared"),
    ({"more.jsonl": b"{}"}, {}, "#", "The archive has 2 tables"),
    ({"notes.txt": b"x"}, {}, "#", "notes.txt: Expected the name of an image"),
    ({}, {"ignore": None}, "#/plate", "Column `plate` has no meaning beside an image"),
    ({}, {"image": "picture"}, "#/picture", "There is no column `picture`"),
    ({}, {"image": None}, "#/image", "an archive of images and one table"),
]


@pytest.mark.parametrize(("files", "query", "pointer", "detail"), WRONG)
async def test_a_bad_archive_of_past_rounds_leaves_nothing_behind(
    api: Api, files: dict[str, bytes], query: dict[str, Any], pointer: str, detail: str
):
    place, found = error(await imported(api, {**ARCHIVE, **files}, **query))
    assert place == pointer
    assert detail in found
    assert await api.last_offset() == 0


async def test_images_that_are_named_again_and_again_count_each_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(named, "MAX_UNPACKED_BYTES", 2 * len(FILES[0]) + len(FILES[1]) - 1)
    assert "at most 0 GiB" in error(await imported(api, ARCHIVE))[1]
    monkeypatch.undo()
    monkeypatch.setattr(image_tables, "MAX_UPLOAD_PIXELS", 3 * 48 - 1)
    assert "143 pixels in all" in error(await imported(api, ARCHIVE))[1]
    monkeypatch.undo()
    monkeypatch.setattr(history, "MAX_SPOOLED_BYTES", 1000)
    assert "as float32" in error(await imported(api, ARCHIVE))[1]
    assert await api.last_offset() == 0


async def test_a_table_alone_is_no_history_of_images(api: Api):
    to, query = "/experiments/doses/history", {"arm": "dose", "reward": "gain"}
    table = {"content-type": "text/csv"}
    plain = await api.http.post(to, content=PLATES, params=query, headers=table)
    assert "Past rounds of images need `image`" in error(plain)[1]
    named_ = await api.http.post(to, content=PLATES, params=PAST, headers=table)
    assert error(named_)[0] == "#/image"
