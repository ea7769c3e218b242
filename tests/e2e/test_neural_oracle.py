"""A fixed neural encoder decides as an oracle of numpy alone says, over kills of all processes."""

import ast
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from daband_client import AsyncClient
from tests.e2e.conftest import Adopt
from tests.oracles import neural
from tests.oracles.neural import Oracle, PolicyFile, Rounds
from tests.support.http.clients import client_of
from tests.support.machines.cluster import QUICK, Cluster, Victim, strike
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, idle_state, state
from tests.support.waiting import eventually

# Latents are in single precision there, in double precision here; A and b add up to a thousand of them.
SUMS = 2e-6  # of A and b, relative to the norm
THETA = 2e-5  # of θ, relative to the norm
SCORES = 1e-5  # of φᵀθ and of the width
FILES = 5  # policy files whose A and b are compared

KEEPING = {"KEPT_SNAPSHOTS": 1000}
NETWORK: dict[str, Any] = {"latent_size": 8, "hidden_sizes": [16, 8], "steps_per_episode": 16}
METHODS: dict[str, dict[str, Any]] = {
    "daband": NETWORK,
    "nlinucb-p": {**NETWORK, "component_count": 3},
    "daband-plus": {**NETWORK, "latent_size": 16, "hidden_sizes": [8]},
}


class Served(NamedTuple):
    """What a service has decided since its encoder was activated, and under which policies."""

    rounds: Rounds
    policies: dict[int, PolicyFile]  # some, by version
    offsets: dict[int, int]  # up to which the log was folded, of each version with the encoder


class Alone(Cluster):
    """One server with its trainer inside, on SQLite."""

    def __init__(self, folder: Path) -> None:
        server = Server(folder, **QUICK, **KEEPING)
        self.stores: tuple[Victim, ...] = ()
        self.servers, self.trainers, self.targets = [server], [], [server]


async def serve(cluster: Cluster, method: str, decisions: int, kills: int) -> Served:
    """Activate one encoder, then play so many decisions with kills in between."""
    history = History()
    async with Clients(cluster.urls, history) as clients:
        await clients.create_experiment(method, gate="manual", **METHODS[method])
        version = await activate(cluster, clients)
        rounds = decisions // (2 * (kills + 1))  # both sides of each are decisions
        for victim in cluster.victims(kills):
            await clients.play(rounds, clients=8)
            await strike(victim)
        while history.decided_since(version) < decisions:
            await clients.play(rounds, clients=8)
    await cluster.ready()
    await idle_state(cluster.urls[0], *cluster.processes)
    return await exported(cluster.urls[-1], history)


async def activate(cluster: Cluster, clients: Clients) -> int:
    """Train until there is an encoder, and promote it; under a manual gate no other one follows.

    The first version of the policy with this encoder.
    """
    url = cluster.urls[0]
    async with AsyncClient(url) as client:
        while not (waiting := await client.candidates(NAME)):
            await clients.play(8)
        await client.promote(NAME, waiting[0].episode)

    found: dict[str, Any] = {}

    async def serves() -> bool:
        found.update(await state(url))
        return found.get("encoder_version") == 1

    await eventually(serves, *cluster.processes)
    return int(found["policy_version"])


async def exported(url: str, history: History) -> Served:
    """The log and the policies, as anybody gets them."""
    async with client_of(url) as http, AsyncClient(url) as client:
        log = (await http.get(f"/experiments/{NAME}/log/export")).raise_for_status().text
        listed = (await http.get(f"/experiments/{NAME}/snapshots?limit=1000")).json()["snapshots"]
        offsets = {each["version"]: each["offset"] for each in listed if each["encoder_version"]}
        some = np.linspace(0, len(offsets) - 1, FILES).astype(int)
        versions = {sorted(offsets)[index] for index in some}
        policies = {each: PolicyFile.of(await client.policy(NAME, each)) for each in versions}
    rounds = Rounds.of(log.splitlines(), history.rewarded)
    return Served(rounds, policies, offsets)


def check(served: Served, least_decisions: int) -> None:
    """All that was decided under the encoder is what the oracle decides."""
    first, *others = served.policies.values()
    for other in others:  # the encoder is fixed
        for name, array in first.encoder.items():
            np.testing.assert_array_equal(other.encoder[name], array)
    oracle, rounds = Oracle(first), served.rounds
    latents = oracle.latents(rounds)
    for version, policy in served.policies.items():
        assert policy.manifest["offset"] == served.offsets[version]
        check_statistics(oracle, latents, rounds, policy)
    checked = close_calls = 0
    for version, offset in served.offsets.items():
        rows = np.flatnonzero(rounds.versions == version)
        if len(rows):
            A, b = oracle.statistics(latents, rounds, offset)
            scores = oracle.scores(latents[rows], A, b)
            is_clear = ~oracle.is_close_call(scores, SCORES)
            check_decisions(oracle, rounds, rows[is_clear], scores[is_clear])
            checked, close_calls = checked + len(rows), close_calls + int((~is_clear).sum())
    assert checked >= least_decisions
    assert close_calls <= checked / 100


def check_statistics(oracle: Oracle, latents: Any, rounds: Rounds, policy: PolicyFile) -> None:
    """A, b and θ are those of a policy file; without the newest reward they are not."""
    offset = policy.manifest["offset"]
    A, b = oracle.statistics(latents, rounds, offset)
    theirs = policy.gram + oracle.ridge * np.eye(A.shape[1])
    assert relative_error(theirs, A) < SUMS
    assert relative_error(policy.b, b) < SUMS
    thetas = [np.linalg.solve(*each) for each in ((theirs, policy.b[..., None]), (A, b[..., None]))]
    assert relative_error(*thetas) < THETA
    newest = rounds.reward_offsets[rounds.up_to(offset)].max()
    fewer, _ = oracle.statistics(latents, rounds, newest - 1)
    assert relative_error(theirs, fewer) > 10 * SUMS


def check_decisions(oracle: Oracle, rounds: Rounds, rows: Any, scores: Any) -> None:
    """Probabilities and arms."""
    expected = oracle.probabilities(scores)
    np.testing.assert_allclose(rounds.probabilities[rows], expected, rtol=0, atol=1e-12)
    drawn = [
        oracle.drawn(rounds.ids[row], wanted) for row, wanted in zip(rows, expected, strict=True)
    ]
    assert drawn == rounds.arms[rows].tolist()


def relative_error(ours: Any, theirs: Any) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def test_the_oracle_stands_alone():
    tree = ast.parse(Path(neural.__file__).read_text())
    imported = {
        (each.module or "") if isinstance(each, ast.ImportFrom) else name.name
        for each in ast.walk(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
        for name in each.names
    }
    own = {"collections", "dataclasses", "hashlib", "json", "numpy", "typing"}
    assert {name.partition(".")[0] for name in imported} == own


async def test_a_fixed_encoder_decides_as_the_oracle(folder: Path, adopt: Adopt[Daband]):
    cluster = Alone(folder)
    adopt(cluster.servers[0])
    await cluster.start()
    check(await serve(cluster, "daband", decisions=200, kills=1), 200)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
async def test_a_fixed_encoder_decides_as_the_oracle_over_many_kills(
    method: str,
    folder: Path,
    adopt: Adopt[Daband],
    postgres_url: str,
    redis_url: str,
):
    cluster = Cluster(folder, postgres_url, redis_url, **KEEPING)
    for process in cluster.processes:
        adopt(process)
    await cluster.start()
    check(await serve(cluster, method, decisions=2000, kills=9), 2000)
