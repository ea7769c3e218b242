"""Creating experiments and importing history on pages: as the API does it, in plain words."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.experiment_spec import ExperimentSpec
from service.records import Status
from tests.integration.console.test_pages import ODD, OWN, Checked, create, shown
from tests.support.api import Api, running_api

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial"
HTMX = {**OWN, "HX-Request": "true"}
BY_HAND: dict[str, Any] = {
    "act": "create",
    "name": "trial",
    "arms": "low\n high \n\n",
    "kind": "table",
    "column": ["age", "strain", ""],
    "type": ["numeric", "categorical", "numeric"],
    "levels": ["", "B6, BALB", ""],
    "missing": ["yes", "no", "no"],
    "method": "daband",
    "seed": "7",
    "reason": "mice first",
    "by": "Ada",
}
PAIR = {"name": "mice", "arm": "treatment", "reward": "shrinkage", "id": "mouse"}
SMALL = PAIR | {"method": "nlinucb", "seed": "1", "reason": "as in the tutorial", "act": "create"}
PAST = "dose,gain,a,b,c,d\nlow,1,1,2,3,4\nhigh,0,0,0,0,0\nlow,,1,1,1,1\n"


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    async with running_api(url) as running:
        yield running


def tutorial(mice: bytes = b"", humans: bytes = b"") -> dict[str, Any]:
    """The tutorial's two files, some lines of them; or others."""
    contents = {"source": ("mice.csv", mice), "target": ("humans.csv", humans)}
    return {
        field: (name, content or b"\n".join((TUTORIAL / name).read_bytes().splitlines()[:61]))
        for field, (name, content) in contents.items()
    }


async def sent(api: Api, path: str, data: dict[str, Any], **given: Any) -> httpx.Response:
    headers = given.pop("headers", OWN)
    return await api.http.post(f"/console{path}", data=data, headers=headers, **given)


def wrongs(page: str) -> list[str]:
    return re.findall(r'role="alert">([^<]*)<', page)


async def test_an_experiment_is_created_by_hand_as_by_the_api(api: Api):
    await shown(api, "/console/create")
    made = await sent(api, "/create", {**BY_HAND, "exclusive": "yes", "low": "0", "high": "120"})
    assert made.headers["location"] == "/console/experiments/trial?done=create"
    assert "is created" in (await shown(api, made.headers["location"])).text
    columns = [
        {"name": "age", "type": "numeric", "missing": True},
        {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
    ]
    body = {"arms": ["low", "high"], "context": {"kind": "table", "columns": columns}, "seed": 7}
    config = {"exclusive_rewards": True}
    body |= {"name": "other", "method": "daband", "config": config, "reward_range": [0, 120]}
    assert (await api.http.post("/experiments", json=body)).status_code == 201
    one, other = [await api.services.experiments.get(each) for each in ("trial", "other")]
    assert json.loads(one.spec) == json.loads(other.spec)
    (entry,) = (await api.http.get("/experiments/trial/audit")).json()["entries"]
    assert entry["what"] == "created"
    assert (entry["details"]["by"], entry["details"]["reason"]) == ("Ada", "mice first")


async def test_a_vector_is_created_by_hand(api: Api):
    made = await sent(api, "/create", {**BY_HAND, "kind": "vector", "size": "3"})
    assert made.status_code == 303
    spec = ExperimentSpec.of(await api.services.experiments.get("trial"))
    assert (spec.context_shape, spec.table) == ((3,), None)


async def test_columns_are_added_and_removed_without_a_script(api: Api):
    more = await sent(api, "/create", {**BY_HAND, "act": "add"})
    assert more.text.count('name="column"') == 4
    assert 'value="strain"' in more.text
    less = await sent(api, "/create", {**BY_HAND, "act": "remove-0"})
    assert less.text.count('name="column"') == 2
    assert 'value="age"' not in less.text
    assert (await api.http.get("/experiments")).json() == {"experiments": []}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a b"}, "name", "1 to 128 letters"),
    ({"name": "doses"}, "name", "exists already"),
    ({"arms": ""}, "arms", "at least one arm"),
    ({"arms": "a\na"}, "arms", "unique"),
    ({"arms": "a\n" + "x" * 129}, "arms", "Line 2:"),
    ({"seed": "x"}, "seed", "no whole number"),
    ({"seed": "-1"}, "seed", "between 0 and"),
    ({"method": "magic"}, "method", ""),
    ({"low": "1"}, "range", "both ends"),
    ({"low": "2", "high": "1"}, "range", "the lower one first"),
    ({"low": "x", "high": "1"}, "range", "no number"),
    ({"levels": ["", "", ""]}, "columns", "`values`"),
    ({"column": ["age", "age", ""], "type": ["numeric"] * 3, "levels": [""] * 3}, "columns", "age"),
    ({"column": [], "type": [], "levels": [], "missing": []}, "columns", "1 to 4096 columns"),
    ({"type": ["date", "date", "date"]}, "columns", "one of numeric"),
    ({"kind": "vector", "size": "0"}, "size", "at least 1"),
    ({"kind": "vector", "size": "many"}, "size", "no whole number"),
    ({"reason": " "}, "reason", "Say why"),
    ({"by": "x" * 501}, "by", "At most 500"),
]


async def test_what_is_wrong_is_said_beside_its_field(api: Api):
    await create(api)
    for change, field, words in WRONG:
        refused = await sent(api, "/create", {**BY_HAND, **change})
        assert refused.status_code in (409, 422), change
        Checked(refused.text)
        said = refused.text.partition(f'id="{field}-wrong"')[2].partition("</p>")[0]
        assert words in said, (change, field, said)
        assert said, (change, field)
    assert len((await api.http.get("/experiments")).json()["experiments"]) == 1


async def test_two_tables_are_shown_before_anything_is_created(api: Api):
    assert "Choose two files" in (await shown(api, "/console/create/tables")).text
    page = await sent(api, "/create/tables", {"act": "preview"}, files=tutorial())
    assert page.status_code == 200, page.text
    Checked(page.text)
    for words in (
        "60 past rounds with 3 arms",
        "numeric (found)",
        "boolean (found)",
        "<option selected>treatment</option>",
        "<option selected>shrinkage</option>",
        "<option selected>mouse</option>",
        "rewards lie between",
    ):
        assert words in page.text, words
    part = await sent(api, "/create/tables", {}, files=tutorial(), headers=HTMX)
    assert (part.status_code, "<html" in part.text, "60 past rounds" in part.text) == (
        200,
        False,
        True,
    )
    assert (await api.http.get("/experiments")).json() == {"experiments": []}


async def test_two_tables_become_an_experiment_once(api: Api):
    for attempt in range(2):  # the second continues the first, or changes nothing
        made = await sent(api, "/create/tables", SMALL, files=tutorial())
        assert made.status_code == 303, made.text
        assert await api.last_offset("mice") == 1 + 2 * 60 + 2, attempt
    page = await shown(api, made.headers["location"])
    assert "all rows of both tables" in page.text
    state = (await api.http.get("/experiments/mice")).json()
    assert state["arms"] == ["high", "low", "placebo"]
    assert [each["name"] for each in state["context"]["columns"]] == [
        *("il6", "ki67", "sex", "crp", "treated_before")
    ]
    trail = (await api.http.get("/experiments/mice/audit")).json()["entries"]
    assert {each["what"] for each in trail} == {"created", "history_imported"}
    assert {each["details"]["reason"] for each in trail} == {"as in the tutorial"}
    htmx = await sent(api, "/create/tables", SMALL, files=tutorial(), headers=HTMX)
    assert htmx.headers["hx-redirect"] == made.headers["location"]


async def test_a_choice_is_kept_where_nothing_can_be_guessed(api: Api):
    files = tutorial(b"a,dose,gain\n1,1,2\n2,2,3\n1,1,1\n", b"a\n1\n")
    for chosen in ({"arm": "dose"}, {"reward": "gain", "ignore": "a"}):
        page = await sent(api, "/create/tables", chosen, files=files)
        assert "Choose the arm and the reward" in page.text
        (name,) = {*chosen.values()} - {"a"}
        assert page.text.count(f"<option selected>{name}</option>") == 1
        assert ('value="a" checked' in page.text) is ("ignore" in chosen)


async def test_choices_of_the_columns_hold(api: Api):
    choices = {"ignore": ["ki67"], "column": ["il6", "sex"], "type": ["as found", "categorical"]}
    made = await sent(api, "/create/tables", SMALL | choices, files=tutorial())
    assert made.status_code == 303, made.text
    columns = (await api.http.get("/experiments/mice")).json()["context"]["columns"]
    assert [each["name"] for each in columns] == ["il6", "sex", "crp", "treated_before"]
    assert columns[1]["type"] == "categorical"


async def test_bad_tables_create_nothing(api: Api):
    await create(api)
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (SMALL, {}, "Choose the source"),
        (SMALL, {"files": {"source": tutorial()["source"]}}, "Choose the target"),
        (SMALL, {"files": tutorial(b"a,b\n1,2\n", b"a\n1\n")}, "Choose the arm and the reward"),
        (
            SMALL,
            {"files": tutorial(b"a,treatment,shrinkage,mouse\n\xff,low,1,m\n", b"a\n1\n")},
            "UTF-8",
        ),
        (SMALL, {"files": tutorial() | {"source": ("m.png", b"\x89PNG")}}, "Choose a file: .csv"),
        (SMALL, {"files": tutorial() | {"source": ("m.parquet", b"PAR1")}}, "no Parquet file"),
        (SMALL | {"name": "doses"}, {"files": tutorial()}, "exists already"),
        (SMALL | {"name": "a b"}, {"files": tutorial()}, "1 to 128 letters"),
        (SMALL | {"reason": ""}, {"files": tutorial()}, "Say why"),
        (SMALL | {"low": "0", "high": "2"}, {"files": tutorial()}, "must lie between 0 and 2"),
        (SMALL | {"arm": "il6", "reward": "sex"}, {"files": tutorial()}, "sex"),
    ]
    for data, given, words in cases:
        refused = await sent(api, "/create/tables", data, **given)
        assert (refused.status_code, words in refused.text) == (422, True), (
            words,
            wrongs(refused.text),
        )
        Checked(refused.text)
    assert len((await api.http.get("/experiments")).json()["experiments"]) == 1


async def test_odd_columns_of_tables_stay_text(api: Api):
    odd = ["<script>alert(1)</script>", "{{ 7 * 7 }}", "שלום low", "a" * 100]
    header = ",".join(odd)
    rows = "\n".join(
        f"{n},{n % 3},{n % 2},{n},{'<img src=x>' if n % 2 else 'b'},{n}" for n in range(30)
    )
    source = f"{header},dose,gain\n{rows}\n".encode()
    target = f"{header}\n1,2,1,4\n2,0,0,5\n".encode()
    for headers in (OWN, HTMX):
        page = await sent(
            api, "/create/tables", {}, files=tutorial(source, target), headers=headers
        )
        assert "30 past rounds" in page.text, page.text
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert ">49<" not in page.text
        Checked(page.text)
    by_hand = await sent(api, "/create", BY_HAND | {"name": ODD[1], "column": ODD, "levels": ODD})
    assert "<script>alert" not in by_hand.text
    assert "<img" not in by_hand.text


def past(content: str = PAST) -> dict[str, Any]:
    return {"files": {"file": ("past.csv", content.encode())}}


CHOSEN = {"act": "import", "arm": "dose", "reward": "gain", "reason": "from the notebook"}


async def test_a_history_is_shown_imported_and_said_to_be_there(api: Api):
    place = await create(api, arms=["low", "high"])
    path = place.removeprefix("/console") + "/history"
    assert "Nothing was imported yet" in (await shown(api, f"{place}/history")).text
    look = await sent(api, path, {}, **past())
    assert "<option selected>dose</option>" in look.text  # the only column that holds arms
    assert await api.last_offset() == 0
    first = await sent(api, path, CHOSEN, **past())
    assert "3 rounds with 2 rewards are now in the log" in first.text
    assert "not identifiable" in first.text
    again = await sent(api, path, CHOSEN, **past(), headers=HTMX)
    assert "3 rounds with 2 rewards were already in the log" in again.text
    assert await api.last_offset() == 1 + 3 + 2
    assert "from the notebook" in (await shown(api, f"{place}/history")).text
    progress = await api.http.get("/console/importing?name=doses")
    assert 'max="3" value="3"' in progress.text
    for query in ("name=doses&after=6", "name=nobody", "name=a%20b"):
        assert (await api.http.get(f"/console/importing?{query}")).status_code == 204


async def test_a_bad_history_imports_nothing(api: Api):
    place = await create(api, arms=["low", "high"])
    path = place.removeprefix("/console") + "/history"
    for data, given, words in (
        (CHOSEN, {}, "Choose a table of past rounds"),
        (CHOSEN, past(PAST.replace("high", "other")), "row 2: Column `dose` names an arm"),
        (CHOSEN, past(PAST.replace("low,1,", "low,9,")), "must lie between 0 and 1"),
        (CHOSEN, past(PAST.replace(",d", ",dose")), "dose"),
        (CHOSEN | {"ignore": "a"}, past(), "A context has 4 numbers"),
        (CHOSEN | {"reason": ""}, past(), "Say why"),
        (CHOSEN | {"arm": "", "reward": "gain"}, past(), "Choose the arm and the reward"),
    ):
        refused = await sent(api, path, data, **given)
        assert (refused.status_code, words in refused.text) == (422, True), (words, refused.text)
        Checked(refused.text)
    await api.services.experiments.set_status("doses", Status.PAUSED)
    refused = await sent(api, path, CHOSEN, **past())
    assert "is paused" in refused.text
    assert await api.last_offset() == 0


async def test_an_experiment_without_shared_contexts_takes_no_history(api: Api):
    place = await create(api, context={"kind": "per_arm", "shape": [4]})
    page = await shown(api, f"{place}/history")
    assert "takes no history" in page.text
    assert 'type="file"' not in page.text


@pytest.mark.parametrize("path", ["/create", "/create/tables", "/experiments/doses/history"])
async def test_forms_of_other_sites_create_and_import_nothing(api: Api, path: str):
    await create(api, arms=["low", "high"])
    files = tutorial() | past()["files"] if path != "/create" else None
    if files and "history" in path:
        files = past()["files"]
    for headers in ({}, {"Origin": "https://evil.example"}):
        data = SMALL if path != "/create" else BY_HAND
        refused = await sent(api, path, data | CHOSEN, files=files, headers=headers)
        assert refused.status_code == 403
    assert len((await api.http.get("/experiments")).json()["experiments"]) == 1
    assert await api.last_offset() == 0
