"""Each page in its states: empty, full, refused, with names that nobody would choose."""

import asyncio
import csv
import io
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import numpy as np
import pytest

from service.console import live_parts
from service.console.live_parts import LiveParts
from service.console.rendering import POLICY
from service.console.static_files import static_files
from service.records import Actor, FailureStage, Status
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.evaluations import played

OWN = {"Origin": "http://test"}
ODD = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "שלום \u202e low",
    "a" * 100,
]
TABS = ("", "/target", "/log", "/history")
MOST_QUERIES = 20  # of a part that is drawn
OTHERS = ("/console", "/console/create", "/console/create/tables", "/console/system")


class Checked(HTMLParser):
    """Refuses what the policy forbids, and remembers addresses and ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.feed(page)
        assert len(self.ids) == len(set(self.ids)), self.ids

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert tag not in {"style", "iframe", "img", "base", "object", "embed"}
        assert tag != "script" or given["src"], "an inline script"
        assert not {"style", "hx-on", "srcdoc"} & set(given)
        assert not any(name.startswith("on") for name in given), given
        self.ids += [given["id"] or ""] if "id" in given else []
        self.addresses += [given[name] or "" for name in ("href", "src", "action") if name in given]


async def shown(api: Api, path: str, status: int = 200) -> httpx.Response:
    """A page that keeps to its own policy."""
    answer = await api.http.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert all(each[:1] in "/?#" or each == "data:," for each in Checked(answer.text).addresses)
    return answer


@pytest.fixture
async def api(url: str) -> Any:
    async with running_api(url) as running:
        yield running


async def create(api: Api, name: str = "doses", **changes: Any) -> str:
    made = await api.http.post("/experiments", json={**DOSES, "name": name, **changes})
    assert made.status_code == 201, made.text
    return f"/console/experiments/{name}"


async def test_an_empty_service_says_how_to_begin(api: Api):
    page = await shown(api, "/console")
    assert "No experiment yet" in page.text
    assert "No experiment yet" in (await shown(api, "/console/system")).text


async def test_a_new_experiment_says_what_is_missing_on_every_tab(api: Api):
    place = await create(api)
    overview = (await shown(api, place)).text
    for words in ("not judged", "No source reward yet", "No source decision yet", "No encoder was"):
        assert words in overview
    assert "No decision" in (await shown(api, f"{place}/log")).text
    assert "remembers no context" in (await shown(api, f"{place}/latents")).text
    assert "[[0, 0, 0, 0]]" in (await shown(api, f"{place}/target")).text
    assert "Nothing to show yet" in (await api.http.get(f"{place}/report")).text


async def test_what_is_not_there_is_a_page_too(api: Api):
    place = await create(api)
    for path in ("/console/nowhere", "/console/experiments/nobody", f"{place}/other"):
        assert "All experiments" in (await shown(api, path, 404)).text
    assert "#/before" in (await shown(api, f"{place}/log?before=x", 422)).text
    assert "#/domain" in (await shown(api, f"{place}/log?domain=both", 422)).text
    part = await api.http.get("/console/experiments/nobody/live", headers={"HX-Request": "true"})
    assert (part.status_code, "<html" in part.text) == (404, False)


async def test_a_thousand_decisions_are_paged(api: Api):
    place = await create(api)
    rounds = [{"source": {"context": CONTEXT}} for _ in range(1000)]
    await api.http.post("/select/batch", json={"experiment": "doses", "rounds": rounds})
    first = (await shown(api, f"{place}/log")).text
    assert first.count('role="rowheader"') == 50
    older = re.search(r'href="(\?before=\d+)">Older', first)
    assert older is not None
    second = (await shown(api, f"{place}/log{older[1]}")).text
    assert '<span class="offset">950</span>' in second
    assert "Newest" in second
    await shown(api, place)


async def test_the_log_is_exported_with_its_filters(api: Api):
    place = await create(api)
    await api.reward(await api.decide())
    await api.decide()
    log = (await shown(api, f"{place}/log?rewarded=true")).text
    link = re.search(r'href="([^"]*/log/export[^"]*)"', log)
    assert link is not None
    for path, api_path, count in (
        (link[1], "/experiments/doses/log/export?rewarded=true", 1),
        (f"{place}/log/export", "/experiments/doses/log/export", 2),
    ):
        exported = await api.http.get(path)
        assert exported.text == (await api.http.get(api_path)).text
        assert len(exported.text.splitlines()) == 1 + count
    await shown(api, f"{place}/log/export?domain=both", 422)


async def test_a_decision_is_replayed_from_the_log(api: Api):
    place = await create(api, arms=ODD)
    answer = (await api.select(request_id=ODD[0])).json()["source"]
    log = (await shown(api, f"{place}/log")).text
    link = f"{place}/log/{answer['decision_id']}"
    assert f'href="{link}"' in log
    page = (await shown(api, link)).text
    assert "Derived again, byte for byte" in page
    for probability in answer["probabilities"].values():
        assert page.count(str(probability)) >= 2  # as logged, and again
    assert "<script>alert" not in page
    assert "Unknown decision" in (await shown(api, f"{place}/log/none", 404)).text


async def test_a_decision_without_its_snapshot_says_so(api: Api):
    await played(api.services.experiments, api.services.event_log, "lab", 1)
    (decision, *_) = (await api.http.get("/experiments/lab/log")).json()["entries"]
    page = await shown(api, f"/console/experiments/lab/log/{decision['decision_id']}")
    assert "version 1 was pruned" in page.text
    assert "Derived again" not in page.text


async def test_the_list_is_searched_and_paged(api: Api):
    for number in range(21):
        await create(api, f"trial-{number}")
    await api.services.experiments.set_status("trial-7", Status.PAUSED, Actor())
    first = (await shown(api, "/console")).text
    assert first.count('role="rowheader"') == 20
    assert "trial-20" in first
    assert ">trial-0<" in (await shown(api, "/console?number=2")).text
    assert (await shown(api, "/console?q=TRIAL-1")).text.count('role="rowheader"') == 11
    paused = (await shown(api, "/console?status=paused")).text
    assert paused.count('role="rowheader"') == 1
    assert "Nothing found" in (await shown(api, "/console?q=%3Cscript%3E")).text


async def test_odd_names_stay_text_on_every_page(api: Api):
    place = await create(api, "x" * 100, arms=ODD)
    for number in range(12):
        body = {"experiment": "x" * 100, "request_id": ODD[number] if number < 3 else f"r-{number}"}
        answer = (await api.select(**body)).json()
        await api.reward(answer["source"]["decision_id"], 1.0)
    for path in (*OTHERS, *(place + tab for tab in TABS)):
        page = (await shown(api, path)).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "49" not in re.findall(r"<bdi>([^<]*)</bdi>", page)
    form = {"text": "[[0, 0, 0, 0]]<script>alert(1)</script>"}
    refused = await api.http.post(f"{place}/target", data=form, headers=OWN)
    assert (refused.status_code, "<script>alert" in refused.text) == (422, False)
    decided = await api.http.post(f"{place}/target", data={"text": "[[0, 0, 0, 0]]"}, headers=OWN)
    Checked(decided.text)
    assert "&lt;script&gt;" in (await shown(api, place)).text


async def test_odd_columns_and_reasons_stay_text(api: Api):
    columns: list[dict[str, Any]] = [{"name": "<script>alert(1)</script>", "type": "numeric"}]
    columns += [{"name": "{{ 7 * 7 }}", "type": "categorical", "values": ODD}]
    place = await create(api, context={"kind": "table", "columns": columns})
    form = {"act": "pause", "reason": ODD[0], "by": ODD[1]}
    assert (await api.http.post(f"{place}/act", data=form, headers=OWN)).status_code == 303
    for tab in ("", "/target", "?done=%3Cscript%3E"):
        assert "<script>alert" not in (await shown(api, place + tab)).text


async def test_static_files_are_kept_and_their_address_changes_with_them(api: Api):
    for file in static_files().values():
        answer = await api.http.get(file.address)
        assert answer.content == file.content
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
        plain = await api.http.get(file.address, headers={"Accept-Encoding": "identity"})
        assert (plain.content, "content-encoding" in plain.headers) == (file.content, False)
        assert (await api.http.get(file.address.replace(file.digest, "0"))).status_code == 404
    assert (await api.http.get("/console/static/0/console.py")).status_code == 404


async def test_a_poll_is_empty_while_nothing_changes(api: Api):
    place, now = await create(api), [0.0]
    api.app.state.live_parts = LiveParts(clock=lambda: now[0])
    seen = re.search(r'hx-get="([^"]*)"', (await shown(api, place)).text)
    assert seen is not None
    assert (await api.http.get(seen[1])).status_code == 204
    await api.decide()
    assert (await api.http.get(seen[1])).status_code == 204  # rendered for all, a moment ago
    now[0] += live_parts.SECONDS
    changed = await api.http.get(seen[1])
    assert (changed.status_code, 'id="live"' in changed.text) == (200, True)


async def test_twenty_consoles_query_the_database_as_often_as_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    place, now, asked = await create(api), [0.0], list[object]()
    api.app.state.live_parts = LiveParts(clock=lambda: now[0])
    ask = api.services.database.rows

    async def counted(*given: Any, **options: Any) -> Any:
        asked.append(given)
        return await ask(*given, **options)

    monkeypatch.setattr(api.services.database, "rows", counted)
    assert (await api.http.get(f"{place}/live")).status_code == 200
    once = len(asked)
    assert 0 < once <= MOST_QUERIES
    polls = [api.http.get(f"{place}/live?seen=older") for _ in range(20)]
    assert {each.status_code for each in await asyncio.gather(*polls)} == {200}
    assert len(asked) == once
    now[0] += live_parts.SECONDS
    await asyncio.gather(*(api.http.get(f"{place}/live") for _ in range(20)))
    assert once < len(asked) < 2 * once  # nothing has changed: it is not drawn again


async def test_polls_end_with_the_experiment(api: Api):
    place, now = await create(api), [0.0]
    api.app.state.live_parts = LiveParts(clock=lambda: now[0])
    assert (await api.http.get(f"{place}/live")).status_code == 200
    assert (await api.http.delete("/experiments/doses?confirm=doses")).status_code == 202
    now[0] += live_parts.SECONDS
    for _ in range(2):
        assert (await api.http.get(f"{place}/live")).status_code == 404


async def test_a_poll_says_that_learning_fails(api: Api):
    place, now = await create(api), [0.0]
    api.app.state.live_parts = LiveParts(clock=lambda: now[0])
    seen = re.search(r'hx-get="([^"]*)"', (await shown(api, place)).text)
    assert seen is not None
    assert (await api.http.get(seen[1])).status_code == 204
    experiment = await api.services.experiments.get("doses")
    await api.services.failures.record(experiment.experiment_id, FailureStage.TRAINING, ODD[0])
    now[0] += live_parts.SECONDS
    part = await api.http.get(seen[1])
    assert (part.status_code, "Learning fails." in part.text) == (200, True)
    assert "<script>alert" not in part.text


async def test_a_loaded_page_is_followed_by_polls_that_are_as_new(api: Api):
    place = await create(api)
    api.app.state.live_parts = LiveParts(clock=lambda: 0.0)
    old = re.search(r'hx-get="([^"]*)"', (await shown(api, place)).text)
    assert old is not None
    assert (await api.http.get(old[1])).status_code == 204
    await api.decide()
    new = re.search(r'hx-get="([^"]*)"', (await shown(api, place)).text)
    assert new is not None
    assert new[1] != old[1]
    assert (await api.http.get(new[1])).status_code == 204


async def test_every_act_is_in_the_audit_trail_with_the_reason(api: Api):
    place = await create(api)
    await api.reward(await api.decide())
    for act, what in (
        ("train", "training_begun"),
        ("open", "phase_changed"),
        ("pause", "paused"),
        ("resume", "active"),
    ):
        form = {"act": act, "reason": f"why {act}", "by": "Ada"}
        answer = await api.http.post(f"{place}/act", data=form, headers=OWN)
        assert answer.headers["location"] == f"{place}?done={act}"
        assert 'class="notice good"' in (await shown(api, answer.headers["location"])).text
        trail = (await api.http.get("/experiments/doses/audit")).json()["entries"]
        assert any(
            each["what"] == what
            and (each["details"]["by"], each["details"]["reason"]) == ("Ada", f"why {act}")
            for each in trail
        ), trail


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"act": "pause"}, 422),
        ({"act": "pause", "reason": ""}, 422),
        ({"act": "pause", "reason": "x" * 501}, 422),
        ({"act": "erase", "reason": "x"}, 422),
        ({"act": "train", "reason": "x"}, 409),
        ({"act": "promote", "reason": "x", "number": "9"}, 404),
        ({"act": "restore", "reason": "x", "number": "9"}, 404),
    ],
)
async def test_an_act_that_cannot_be_done_is_refused(api: Api, form: dict[str, str], status: int):
    place = await create(api)
    answer = await api.http.post(f"{place}/act", data=form, headers=OWN)
    assert answer.status_code == status
    Checked(answer.text)
    assert (await api.services.experiments.get("doses")).status is Status.ACTIVE


CSV = "id,age,strain\nm1,3,B6\nm2,,BALB\n"
COLUMNS = [
    {"name": "age", "type": "numeric", "missing": True, "fill": 4},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
]


async def decided(api: Api, place: str, **sent: Any) -> str:
    answer = await api.http.post(f"{place}/target", headers=OWN, **sent)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_rows_are_pasted_or_dropped(api: Api):
    place = await create(api, context={"kind": "table", "columns": COLUMNS})
    file = {"file": ("humans.csv", CSV.encode(), "text/csv")}
    for sent in (
        {"data": {"text": CSV}},
        {"files": file},
        {"data": {"text": '[{"age": 3, "strain": "B6"}, {"strain": "BALB"}]'}},
    ):
        page = await decided(api, place, **sent)
        assert "2 decisions of policy 0" in page
        assert page.count('class="arm"') == 2
    whole = await decided(api, place, data={"text": CSV, "download": "true"})
    assert whole.splitlines()[0].startswith("arm,mean,bonus,transfer_confidence,abstained,p(low)")
    assert len(whole.splitlines()) == 3
    floor = await decided(api, place, data={"text": CSV, "floor": "0.5"})
    assert "it abstained on 2" in floor


async def test_a_download_is_no_formula(api: Api):
    place = await create(api, arms=["=cmd|' /C calc'!A0", "-1"])
    text = await decided(api, place, data={"text": "[[1,2,3,4],[0,0,0,0]]", "download": "true"})
    arms = {line["arm"] for line in csv.DictReader(io.StringIO(text))}
    assert arms <= {"'=cmd|' /C calc'!A0", "-1"}
    assert "p('=cmd|' /C calc'!A0)" in text.splitlines()[0]


async def test_vectors_are_given_as_json_or_csv(api: Api):
    place = await create(api)
    for text, count in (("[1, 2, 3, 4]", 1), ("[[1,2,3,4],[0,0,0,0]]", 2), ("a,b,c,d\n1,2,3,4", 1)):
        page = await decided(api, place, data={"text": text})
        assert page.count('class="arm"') == count


async def test_decisions_are_those_of_the_api(api: Api):
    place = await create(api)
    contexts = np.random.default_rng(1).normal(size=(5, 4)).round(3).tolist()
    body = {"experiment": "doses", "contexts": contexts}
    found = (await api.http.post("/target/select", json=body)).json()["decisions"]
    page = await decided(api, place, data={"text": str(contexts)})
    arms = re.findall(r'class="arm"><bdi>(\w+)</bdi>', page)
    assert arms == [each["arm"] for each in found]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"data": {"text": ""}}, "Paste a context"),
        ({"data": {"text": "[1, 2"}}, "not valid JSON"),
        ({"data": {"text": "[1, 2]"}}, "#/context"),
        ({"data": {"text": "1,2,3,4\nx,2,3,4"}}, "no number"),
        ({"files": {"file": ("a.csv", b"\xff\xfe\x00", "text/csv")}}, "neither an image nor text"),
        ({"files": {"file": ("a.png", b"\x89PNG", "image/png")}}, "image"),
    ],
)
async def test_bad_contexts_are_refused_with_their_place(api: Api, sent: Any, words: str):
    place = await create(api)
    answer = await api.http.post(f"{place}/target", headers=OWN, **sent)
    assert (answer.status_code, words in answer.text) == (422, True), answer.text
