"""What each page costs: its weight on first load, and its CPU beside the JSON calls with the same content."""

import gzip
import time
from typing import Any

import httpx
import pytest

from service.console.static_files import static_files
from service.evaluating.jobs import EvaluationJobs
from service.evaluating.running import EvaluationStores
from tests.integration.console.test_pages import OWN, Checked
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.learning import TRAINING, idle_state
from tests.support.measuring import Measured

PLACE, API = "/console/experiments/doses", "/experiments/doses"
HEAVIEST = 120_000  # bytes of a page with its scripts and styles, compressed
DEAREST = 3.0  # times the CPU of the JSON calls
REPEATS = 12
CONTEXTS = [CONTEXT] * 20
ASKED = {"experiment": "doses", "contexts": CONTEXTS}

Call = tuple[str, str, dict[str, Any]]


async def filled(api: Api, count: int) -> dict[str, list[Call]]:
    """An experiment of so many rounds with all that pages show; each page, and the JSON calls with its content."""
    config = {**DOSES["config"], "episode_length": count // 2}
    made = await api.http.post("/experiments", json={**DOSES, "config": config})
    assert made.status_code == 201
    rounds = [{"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}] * count
    answer = await api.http.post("/select/batch", json={"experiment": "doses", "rounds": rounds})
    ids = [each["source"]["decision_id"] for each in answer.json()["rounds"]]
    rewards = [{"decision_id": each, "reward": n % 3 / 2} for n, each in enumerate(ids)]
    await api.http.post("/reward/batch", json={"rewards": rewards})
    await idle_state(api, count)
    evaluation = await evaluated(api)
    learning = f"{API}/learning?points="
    each_shown = [f"{API}/state", f"{API}/transfer", f"{learning}16"]
    pages: dict[str, list[str]] = {
        "/console": ["/experiments", *each_shown],
        PLACE: [
            *(API, f"{API}/state", f"{API}/transfer", f"{learning}40"),
            *(f"{API}/snapshots?limit=200", f"{API}/candidates"),
        ],
        f"{PLACE}/latents": [f"{API}/latents"],
        f"{PLACE}/log": [API, f"{API}/log"],
        f"{PLACE}/log/{ids[-1]}": [API, f"{API}/decisions/{ids[-1]}"],
        f"{PLACE}/history": [API, f"{API}/audit"],
        f"{PLACE}/evaluations": [
            API,
            "/evaluations?experiment=doses",
            f"{API}/snapshots?limit=200",
        ],
        # Its plots cost more than any JSON: the page is compared with the API's own.
        f"{PLACE}/evaluations/{evaluation}": [API, f"/evaluations/{evaluation}/report"],
        "/console/system": ["/readyz", "/experiments", f"{API}/state"],
    }
    found = {path: [get(each) for each in calls] for path, calls in pages.items()}
    found[f"{PLACE}/target"] = [
        ("POST", "/target/select", {"json": ASKED}),
        ("POST", f"{API}/nearest", {"json": {"contexts": CONTEXTS}}),
    ]
    return found


def get(path: str) -> Call:
    return "GET", path, {}


def page_call(path: str) -> Call:
    """The request of a page; the playground is asked for the same contexts."""
    if path != f"{PLACE}/target":
        return get(path)
    return "POST", path, {"data": {"text": str(CONTEXTS)}, "headers": OWN}


async def evaluated(api: Api) -> str:
    asked = {
        "experiment": "doses",
        "candidates": [{"kind": "uniform"}, {"kind": "arm", "arm": "mid"}],
    }
    job = (await api.http.post("/evaluations", json=asked)).json()
    services = api.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    await EvaluationJobs(stores, services.evaluations).run_next()
    found: str = job["evaluation_id"]
    return found


async def called(api: Api, call: Call) -> httpx.Response:
    method, path, sent = call
    answer = await api.http.request(method, path, **sent)
    assert answer.status_code == 200, (path, answer.text)
    return answer


def weight(page: httpx.Response) -> int:
    """Bytes of a first load, compressed."""
    addresses = {each for each in Checked(page.text).addresses if "/static/" in each}
    loaded = [static_files()[each.rpartition("/")[2]].compressed for each in addresses]
    return len(gzip.compress(page.content)) + sum(map(len, loaded))


async def test_a_first_load_of_every_page_is_small(url: str):
    async with running_api(url, **TRAINING) as api:
        for path in await filled(api, 100):
            assert weight(await called(api, page_call(path))) < HEAVIEST, path
        for path in ("/console/create", "/console/create/tables", f"{PLACE}/target"):
            assert weight(await called(api, get(path))) < HEAVIEST, path


@pytest.mark.slow
async def test_a_page_costs_little_more_than_its_json(url: str, measured: Measured):
    async with running_api(url, **TRAINING) as api:
        for path, calls in (await filled(api, 1000)).items():
            ratio = await cost(api, [page_call(path)]) / await cost(api, calls)
            measured.at_most(f"{path}, times the CPU of its JSON", ratio, DEAREST)


async def cost(api: Api, calls: list[Call]) -> float:
    """Seconds of CPU of these calls, in the cheapest of some rounds."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        for each in calls:
            await called(api, each)
        found.append(time.process_time() - start)
    return min(found)
