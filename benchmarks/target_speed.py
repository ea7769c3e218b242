"""What `/target/select` costs over the bare model call, as ratios measured in one run.

`python -m benchmarks.target_speed [--repeats 60]`: a batch of 1,000 vectors in one request, answered in this
process by the whole app (routing, middleware, decoding, checks, answer) and by the policy alone, before
and after each of them. CPU times of the process; of the ratios the median and the quartiles.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import numpy as np

from benchmarks.lab import use_one_thread
from model.bandit.policy import Policy
from model.config import ContextKind, system_config
from model.learner import Learner
from model.rounds import Domain, RewardedRound
from service.codec.bodies import MediaType
from service.deciding.policies import Served
from service.experiment_spec import ExperimentSpec
from service.ops.process_tuning import keep_large_blocks, share_arenas
from tests.support.api import Api, Exchange, running_api

BATCH = 1000
ARMS = 10
CALLS = 10
WARM_UP = 3
SHAPES = {"d=784, 256 hidden": (784, (256,)), "d=32, 128·128 hidden": (32, (128, 128))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args(arguments)
    use_one_thread()
    share_arenas()  # as the server does
    keep_large_blocks()
    for name, (size, hidden) in SHAPES.items():
        for accept, ratios in asyncio.run(measured(size, hidden, options.repeats)).items():
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{name}, answered as {accept}: {middle:.2f} ({low:.2f} to {high:.2f})")


async def measured(size: int, hidden: tuple[int, ...], repeats: int) -> dict[str, list[float]]:
    """CPU time of a request ÷ that of the policy alone around it, by what is answered."""
    policy = _policy(size, hidden)
    contexts = np.random.default_rng(1).standard_normal((BATCH, size)).astype(np.float32)
    content = contexts.tobytes()
    async with _served(policy, size) as api:

        async def request(accept: str) -> None:
            assert await _posted(api, "/target/select", content, accept) == 200

        async def bare() -> None:
            policy.select_target(contexts)

        ratios: dict[str, list[float]] = {MediaType.JSON: [], MediaType.NPY: []}
        for _ in range(repeats + WARM_UP):
            for accept, found in ratios.items():
                before = await _cpu(bare)
                whole = await _cpu(partial(request, accept))
                found.append(2 * whole / (before + await _cpu(bare)))
    return {accept: found[WARM_UP:] for accept, found in ratios.items()}


async def _cpu(work: Callable[[], Awaitable[None]]) -> float:
    """Of one call, from some in a row: what the other side left in the caches is paid for once."""
    started = time.process_time()
    for _ in range(CALLS):
        await work()
    return (time.process_time() - started) / CALLS


def _policy(size: int, hidden: tuple[int, ...]) -> Policy:
    """A policy that has learned something and rates its decisions."""
    config = system_config(
        "nlinucb",
        arm_count=ARMS,
        context_shape=(size,),
        hidden_sizes=hidden,
        episode_length=256,
        steps_per_episode=1,
        holdout_share=0.5,
        gate_margin=1.0,
        gate_rank=1.0,
    )
    learner = Learner(config, seed=1)
    rng = np.random.default_rng(0)
    for t, context in enumerate(rng.standard_normal((512, size)).astype(np.float32)):
        learner.observe_context(t, Domain.TARGET, context)
        learner.observe(RewardedRound(t, Domain.SOURCE, context, t % ARMS, float(t % 2)))
        learner.train()
    assert learner.confidence is not None
    return learner.policy(1)


@asynccontextmanager
async def _served(policy: Policy, size: int) -> AsyncIterator[Api]:
    """The service in this process, serving the policy."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/daband.db"
        async with running_api(url, poll_seconds=3600) as api:  # only the requests shall cost
            arms = tuple(f"arm-{number}" for number in range(ARMS))
            spec = ExperimentSpec("speed", arms, ContextKind.SHARED, (size,))
            experiment = await api.services.experiments.create(spec.name, **spec.row())
            api.services.policies._served["speed"] = Served(experiment, spec, policy)
            gc.collect()
            gc.freeze()  # as the server does
            yield api


async def _posted(api: Api, path: str, content: bytes, accept: str) -> int:
    """The status of a request that is handed over as our server does; no client's cost."""
    headers = [(b"content-type", b"application/octet-stream"), (b"accept", accept.encode())]
    fast_path, exchange = api.app.fast_path, Exchange()

    url, state = path.encode() + b"?experiment=speed", {"services": api.services}
    request = fast_path.find(b"POST", url, headers, state)
    assert request is not None
    fast_path.take(request, content, exchange)
    return (await exchange.answered)[0]


if __name__ == "__main__":
    main()
