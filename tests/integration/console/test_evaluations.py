"""The evaluations of an experiment on the console: started, followed, cancelled, read."""

import re
from typing import Any

import pytest

from service.auth.tenants import TenantScope
from service.evaluating.jobs import EvaluationJobs
from service.evaluating.running import EvaluationStores
from tests.integration.console.test_pages import ODD, OWN, Checked, create, shown
from tests.support.api import Api, running_api
from tests.support.evaluations import played
from tests.support.waiting import eventually

PLACE = "/console/experiments/lab/evaluations"


@pytest.fixture
async def lab(url: str) -> Any:
    """The app with a log of `lab`; no process runs the queue."""
    async with running_api(url) as api:
        await played(api.services.experiments, api.services.event_log, "lab", 120)
        yield api


async def run_next(api: Api) -> None:
    services = api.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    assert await EvaluationJobs(stores, services.evaluations).run_next()


async def started(api: Api, **form: Any) -> str:
    """The page of a new evaluation."""
    answer = await api.http.post(PLACE, data=form, headers=OWN)
    assert answer.status_code == 303, answer.text
    place: str = answer.headers["location"]
    assert place.startswith(f"{PLACE}/")
    return place


def poll_of(page: str) -> str:
    found = re.search(r'hx-get="([^"]*)"', page)
    assert found is not None
    return found[1]


async def test_an_evaluation_is_started_followed_and_read(lab: Api):
    assert "None yet" in (await shown(lab, PLACE)).text
    place = await started(lab, candidate=["uniform", "arm:mid"], more="system:linucb,alpha=0.5")
    first = (await shown(lab, place)).text
    assert "It waits for the evaluations before it" in first
    assert (await lab.http.get(poll_of(first))).status_code == 204
    await run_next(lab)
    part = await lab.http.get(poll_of(first))
    assert (part.status_code, "hx-get" in part.text) == (200, False)  # it no longer asks
    done = (await shown(lab, place)).text
    for name in ("uniform", "arm:mid", "system:linucb,alpha=0.5"):
        assert done.count(f'<th role="rowheader" scope="row">{name}</th>') == 1
    assert done.count("<svg") == 1 + 1 + 3  # the brand, all values, each as the log grew
    assert "every estimate" not in done
    report = await lab.http.get(f"{place}/report")
    assert report.status_code == 200
    listed = (await shown(lab, PLACE)).text
    assert 'class="pill done"' in listed
    assert place in listed


async def test_a_page_shows_the_figures_of_the_api(lab: Api):
    place = await started(lab, candidate="uniform")
    await run_next(lab)
    job = (await lab.http.get(f"/evaluations/{place.rpartition('/')[2]}")).json()
    (candidate,) = job["result"]["candidates"]
    low, high = candidate["estimates"]["dr"]["interval"]
    page = (await shown(lab, place)).text
    assert f"{candidate['value']:.4f}" in page
    assert f"[{low:.4f}, {high:.4f}]" in page


async def test_a_value_that_cannot_be_known_is_explained(lab: Api):
    place = await started(lab, candidate="uniform", target="true")
    await run_next(lab)
    page = (await shown(lab, place)).text
    assert "not identifiable, because there is no snapshot whose encoder" in page
    assert "so no figure is stated" in page


async def test_an_evaluation_is_cancelled(lab: Api):
    place = await started(lab, candidate="uniform")
    answer = await lab.http.post(f"{place}/cancel", headers=OWN)
    assert answer.headers["location"] == place
    page = (await shown(lab, place)).text
    assert "It was cancelled" in page
    assert "hx-get" not in page


async def test_a_failed_one_says_why(lab: Api):
    place = await started(lab, more="version:9")
    await run_next(lab)
    assert "version 9: it does not exist or was pruned" in (await shown(lab, place)).text


async def test_a_form_that_asks_for_nothing_possible_is_refused(lab: Api):
    for form, words in (
        ({}, "#/candidates"),
        ({"more": "best"}, "one of uniform, arm:"),
        ({"more": "arm:none"}, "no arm of this name"),
        ({"more": "file:/etc/passwd"}, "on the command line"),
        ({"candidate": "uniform", "confidence": "1.5"}, "#/confidence"),
        ({"more": "system:linucb,alpha=-1"}, "#/candidates/0"),
    ):
        answer = await lab.http.post(PLACE, data=form, headers=OWN)
        assert (answer.status_code, words in answer.text) == (422, True), answer.text
        assert form.get("more", "") in answer.text  # what was written is still there


async def test_an_evaluation_belongs_to_its_experiment(lab: Api):
    place = await started(lab, candidate="uniform")
    other = await create(lab, "other")
    for path in ("", "/live", "/report"):
        path = f"{other}/evaluations/{place.rpartition('/')[2]}{path}"
        assert (await lab.http.get(path)).status_code == 404
    assert "None yet" in (await shown(lab, f"{other}/evaluations")).text
    cancelled = await lab.http.post(
        f"{other}/evaluations/{place.rpartition('/')[2]}/cancel", headers=OWN
    )
    assert cancelled.status_code == 404
    found = await lab.services.evaluations.list(9, TenantScope())
    assert [each.status.value for each in found] == ["queued"]


async def test_a_foreign_form_starts_nothing(lab: Api):
    for headers in ({}, {"Origin": "https://evil.example"}):
        answer = await lab.http.post(PLACE, data={"candidate": "uniform"}, headers=headers)
        assert answer.status_code == 403
    assert await lab.services.evaluations.list(9, TenantScope()) == []


async def test_odd_arms_stay_text(lab: Api):
    place = await create(lab, "odd", arms=ODD)
    form = {"candidate": [f"arm:{each}" for each in ODD], "more": "arm:<script>alert(2)</script>"}
    refused = await lab.http.post(f"{place}/evaluations", data=form, headers=OWN)
    assert refused.status_code == 422
    answer = await lab.http.post(f"{place}/evaluations", data={"candidate": form["candidate"]}, headers=OWN)  # fmt: skip
    await lab.http.post("/select", json={"experiment": "odd", "source": {"context": [0.0] * 4}})
    await run_next(lab)
    for path in (f"{place}/evaluations", answer.headers["location"]):
        page = (await shown(lab, path)).text
        assert "<script>alert" not in page
        assert "<img" not in page
    assert "<script>alert" not in refused.text


async def ended(api: Api, answer: Any) -> str:
    """The page of the job that a form began, once it has ended."""
    assert answer.status_code == 303, answer.text
    place = answer.headers["location"]

    async def is_over() -> bool:
        return "hx-get" not in (await shown(api, place)).text

    await eventually(is_over)
    return (await shown(api, place)).text


async def test_a_log_file_is_evaluated_as_a_job(lab: Api):
    log = (await lab.http.get("/experiments/lab/log/export")).content
    form = {"candidates": "uniform\narm:mid", "confidence": "0.9"}
    sent = {"file": ("<b>log</b>.jsonl", log)}
    answer = await lab.http.post(f"{PLACE}/file", data=form, files=sent, headers=OWN)
    done = await ended(lab, answer)
    Checked(done)
    assert "<b>log" not in done
    for name in ("uniform", "arm:mid"):
        assert done.count(f'<th role="rowheader" scope="row">{name}</th>') == 1
    assert "source of a log file" in (await shown(lab, PLACE)).text
    report = await lab.http.get(f"{answer.headers['location']}/report")
    assert (report.status_code, "<svg" in report.text) == (200, True)


@pytest.mark.parametrize(
    ("name", "content", "form", "words"),
    [
        ("log.parquet", b"PAR1", {}, "Choose a file"),
        ("log.jsonl", b"", {}, "line 1"),
        ("log.jsonl", b"{}", {"confidence": "2"}, "confidence"),
        ("log.jsonl", b"{}", {"candidates": ""}, "candidate"),
        ("log.jsonl", b"{}", {"candidates": ODD[0]}, "&lt;script&gt;"),
    ],
)
async def test_a_log_file_that_cannot_be_evaluated_says_why(
    lab: Api, name: str, content: bytes, form: dict[str, str], words: str
):
    given = {"candidates": "uniform", "confidence": "0.95", **form}
    sent = {"file": (name, content)}
    answer = await lab.http.post(f"{PLACE}/file", data=given, files=sent, headers=OWN)
    assert (answer.status_code, words in answer.text) == (422, True), answer.text
    assert "<script>alert" not in answer.text
    Checked(answer.text)


async def test_odd_arms_of_a_log_file_stay_text(lab: Api):
    await create(lab, "odd", arms=ODD)
    for _ in range(3):
        chosen = (await lab.select(experiment="odd")).json()["source"]
        await lab.reward(chosen["decision_id"])
    log = (await lab.http.get("/experiments/odd/log/export")).content
    form = {"candidates": "\n".join(f"arm:{each}" for each in ODD), "confidence": "0.9"}
    sent = {"file": ("log.jsonl", log)}
    answer = await lab.http.post(f"{PLACE}/file", data=form, files=sent, headers=OWN)
    done = await ended(lab, answer)
    assert "<script>alert" not in done
    Checked(done)
