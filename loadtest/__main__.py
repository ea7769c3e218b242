"""`python -m loadtest PROFILE`: play a profile, write a report, exit with what came of it.

0: all checks are met. 1: one is not. 2: the generator fell behind, so the run shows nothing.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from loadtest.arrivals import Arrivals
from loadtest.bench import Bench, Traits
from loadtest.checks import Check
from loadtest.generators import GeneratorOptions, Generators
from loadtest.knee import NoKneeError, Promise
from loadtest.patient_client import patient_client
from loadtest.profiles import PROFILES, Plan, warm_up
from loadtest.report import Verdict, write
from loadtest.sampling import Sampler
from loadtest.service_under_test import ServiceUnderTest, on_cores, running_already, started
from loadtest.traffic import Body, Workload
from loadtest.validity import Bounds, faults

EXIT_CODES = {"passed": 0, "FAILED": 1, "INVALID": 2}
TERMINATED = 128 + signal.SIGTERM
SELECTS_A_REWARD = 10
WITH_REWARDS = ("mixed", "soak")
# Small, so that encoders follow each other and all that a learner keeps is full soon.
SOAK_CONFIG = {"episode_length": 64, "rebuild_window": 512, "reservoir_size": 512}


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a profile; the exit code."""
    options = parser().parse_args(arguments)
    with _bench(options) as bench:
        warm_up(bench)
        checks = _checks(options, bench)
        bounds = Bounds(options.max_lag_ms / 1e3, options.max_generator_cpu)
        verdict = Verdict(checks, faults(bench.runs, bounds))
        report = write(options.out or _folder(options.profile), options.profile, bench, verdict)
    print(report.read_text())
    print(f"written to {report.parent}")
    return EXIT_CODES[verdict.word]


def _checks(options: argparse.Namespace, bench: Bench) -> list[Check]:
    try:
        return PROFILES[options.profile](bench, _plan(options))
    except NoKneeError as error:
        return [Check("the knee", str(error), "found", is_met=False)]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    add = made.add_argument
    add("profile", choices=PROFILES)
    add("--url", help="a service that runs already")
    add("--database-url", help="its database, to look for lost events")
    add("--pid", type=int, help="its process, to watch CPU and memory")
    add("--header", type=_header, action="append", default=[], help="'Name: value', also a key")
    add("--start", choices=("sqlite", "postgres"), default="sqlite", help="without --url")
    add("--workers", type=int, default=1, help="serving processes (with --start postgres)")
    add("--pin", action="store_true", help="service on the first core, all else on the others")
    add("--rate", type=float, default=0.0, help="requests a second instead of the profile's own")
    add("--seconds", type=int, default=0, help="length of a stage instead of the profile's own")
    add("--step-seconds", type=int, default=5, help="length of a step towards the knee")
    add("--repeats", type=int, default=3, help="how often `training` alternates")
    add("--slo-ms", type=float, default=100.0, help="largest p99 below the knee")
    add("--arrivals", type=Arrivals, choices=list(Arrivals), default=Arrivals.POISSON)
    add("--body", type=Body, choices=list(Body), default=Body.JSON)
    add("--arms", type=int, default=10)
    add("--size", type=int, default=32, help="numbers in a context")
    add("--generators", type=int, default=1, help="generator processes")
    add("--timeout", type=float, default=5.0, help="seconds until a request is given up")
    add("--max-lag-ms", type=float, default=20.0, help="p99 of sending late: more is invalid")
    add("--max-generator-cpu", type=float, default=0.9, help="cores a generator: more is invalid")
    add("--seed", type=int, default=1)
    add("--out", type=Path, help="folder of the report (default: loadtest-results/…)")
    return made


@contextmanager
def _bench(options: argparse.Namespace) -> Iterator[Bench]:
    workload = _workload(options)
    with ExitStack() as stack:
        service = stack.enter_context(_service(options))
        config = SOAK_CONFIG if options.profile in WITH_REWARDS else {}
        with patient_client(service) as client:
            client.create_experiment(**workload.creation(config))
        sampler = stack.enter_context(Sampler(service.processes))
        made = GeneratorOptions(options.generators, options.timeout, seed=options.seed)
        generators = stack.enter_context(Generators(service, workload, made))
        yield Bench(service, workload, generators, sampler, Traits(options.arrivals, options.seed))


@contextmanager
def _service(options: argparse.Namespace) -> Iterator[ServiceUnderTest]:
    if options.url:
        yield running_already(options.url, options.database_url, options.pid, dict(options.header))
        return
    cores = os.sched_getaffinity(0)
    first = {min(cores)} if options.pin else cores
    with (
        on_cores(cores - first or cores),
        started(options.start, options.workers, first) as service,
    ):
        yield service


def _workload(options: argparse.Namespace) -> Workload:
    has_rewards = options.profile in WITH_REWARDS
    return Workload(
        experiment=f"load-{datetime.now(UTC):%Y%m%d-%H%M%S}",
        arms=options.arms,
        size=options.size,
        body=options.body,
        selects_a_reward=SELECTS_A_REWARD if has_rewards else 0,
        has_target=options.profile == "soak" and options.body is Body.JSON,
    )


def _plan(options: argparse.Namespace) -> Plan:
    promise = Promise(p99_seconds=options.slo_ms / 1e3)
    return Plan(options.rate, options.seconds, options.step_seconds, options.repeats, promise)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError("a header is 'Name: value'")
    return name.strip(), value.strip()


def _folder(profile: str) -> Path:
    return Path("loadtest-results") / f"{profile}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # what was started must end
    sys.exit(main())
