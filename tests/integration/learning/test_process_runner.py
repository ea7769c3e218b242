"""Training in a separate process: the same result, even if the process dies."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread
from typing import Any

import psutil
import pytest

from model.budget import estimated
from model.config import system_config
from model.learner import Learner, TrainingJob
from model.state.jobs import Message
from model.state.snapshot import state_hash
from service.learning.jobs.job import JobFailed, JobOverran, RunnerClosed
from service.learning.jobs.pipe import receive, send
from service.learning.jobs.process_runner import ATTEMPTS, ProcessRunner
from service.learning.jobs.training_process import NICENESS
from tests.support.builders import make_rounds, small_config, teach
from tests.support.waiting import PATIENCE_SECONDS, eventually

ENDLESS = 100_000  # steps: minutes
MEMORY = 4 << 30


class Deaths:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture(scope="module")
def deaths() -> Deaths:
    return Deaths()


@pytest.fixture(scope="module")
def runner(deaths: Deaths) -> Iterator[ProcessRunner]:
    """One for all tests here: to start its process takes seconds."""
    made = ProcessRunner("cpu", MEMORY, deaths)
    yield made
    made.close()


def due(steps: int = 4, **changes: Any) -> Learner:
    """A learner whose first encoder update is pending."""
    fields = {"divergence_weight": 1.0, "gate_margin": 1.0, **changes}
    config = small_config(steps_per_episode=steps, **fields)
    learner = Learner(config, seed=7)
    rounds = make_rounds(config, config.episode_length)
    teach(learner, rounds[:-1])
    learner.observe(rounds[-1])
    return learner


def pending(learner: Learner) -> TrainingJob:
    assert learner.pending is not None
    return learner.pending


def trained_here() -> str:
    learner = due()
    learner.conclude(pending(learner).run())
    return state_hash(learner)


def trained_by(runner: ProcessRunner) -> str:
    learner = due()
    learner.conclude(runner.train(pending(learner), PATIENCE_SECONDS))
    return state_hash(learner)


def processes() -> list[psutil.Process]:
    """The training processes that this one has."""
    return [
        each
        for each in psutil.Process().children()
        if "service.learning.jobs.training_process" in each.cmdline()
    ]


def test_the_state_is_the_same_as_after_training_here(runner: ProcessRunner):
    assert trained_by(runner) == trained_here()


def test_a_process_is_kept_and_gives_way_to_serving(runner: ProcessRunner):
    trained_by(runner)
    first = processes()
    trained_by(runner)
    assert processes() == first
    assert len(first) == 1
    assert first[0].nice() == min(os.nice(0) + NICENESS, 19)  # 19 is the most there is
    assert os.getpgid(first[0].pid) != os.getpgrp(), "a Ctrl-C while it still imports would end it"


def test_a_job_whose_process_is_killed_is_done_again(runner: ProcessRunner, deaths: Deaths):
    trained_by(runner)
    before = deaths.count
    processes()[0].kill()
    assert trained_by(runner) == trained_here()
    assert deaths.count == before + 1


def test_signals_for_the_whole_group_do_not_end_it(runner: ProcessRunner, deaths: Deaths):
    trained_by(runner)
    before = deaths.count
    for _ in range(2):
        processes()[0].terminate()
        processes()[0].send_signal(2)
        trained_by(runner)
    assert deaths.count == before


async def test_a_death_amid_a_job_is_noticed_and_closing_ends_the_next_process():
    deaths, others, raised = Deaths(), set(processes()), []
    runner = ProcessRunner("cpu", MEMORY, deaths)

    def train() -> None:
        with pytest.raises(RunnerClosed):
            runner.train(pending(due(ENDLESS)), PATIENCE_SECONDS)
        raised.append("closed")

    trained_by(runner)
    (first,) = set(processes()) - others
    idle_seconds = first.cpu_times().user
    training = Thread(target=train, daemon=True)
    training.start()
    await eventually(lambda: first.cpu_times().user > idle_seconds + 0.2)
    first.kill()
    await eventually(lambda: deaths.count == 1)
    await eventually(lambda: bool(set(processes()) - others))
    started = list(set(processes()) - others)
    runner.close()
    training.join(PATIENCE_SECONDS)
    assert raised == ["closed"]
    assert psutil.wait_procs(started, PATIENCE_SECONDS)[1] == []
    assert deaths.count == 1, "what we end ourselves is no death to tell of"
    with pytest.raises(RunnerClosed):
        runner.train(pending(due()), PATIENCE_SECONDS)


def test_a_job_is_given_up_when_its_process_dies_again_and_again():
    deaths = Deaths()
    runner = ProcessRunner("cpu", MEMORY, deaths, python="/bin/false")
    with pytest.raises(JobFailed, match="exit code 1"):
        runner.train(pending(due()), PATIENCE_SECONDS)
    assert deaths.count == ATTEMPTS
    runner.close()


def test_a_job_that_takes_too_long_ends_with_its_process():
    deaths, others = Deaths(), set(processes())
    runner = ProcessRunner("cpu", MEMORY, deaths)
    trained_by(runner)
    (first,) = set(processes()) - others
    with pytest.raises(JobOverran, match=r"longer than 0\.2 s"):
        runner.train(pending(due(ENDLESS)), 0.2)
    assert not first.is_running()
    assert trained_by(runner) == trained_here(), "the next job gets another process"
    assert deaths.count == 0, "what we end ourselves is no death to count"
    runner.close()


def test_a_job_that_wants_too_much_memory_fails_and_the_next_one_does_not():
    deaths = Deaths()
    runner = ProcessRunner("cpu", 512 << 20, deaths)
    with pytest.raises(JobFailed, match="it ran out of memory"):
        runner.train(pending(due(batch_size=65_536, hidden_sizes=(8192,))), PATIENCE_SECONDS)
    assert trained_by(runner) == trained_here()
    assert deaths.count == 0
    runner.close()


@pytest.mark.parametrize(
    ("method", "shape"), [("daband", (64,)), ("daband-plus", (64,)), ("daband-plus", (1, 12, 12))]
)
@pytest.mark.slow
def test_a_job_gets_by_with_what_was_estimated(method: str, shape: tuple[int, ...]):
    config = system_config(method, arm_count=4, context_shape=shape, episode_length=64)
    learner = Learner(config, seed=7)
    rounds = make_rounds(config, config.episode_length)
    teach(learner, rounds[:-1])
    learner.observe(rounds[-1])
    runner = ProcessRunner("cpu", estimated(config).update_bytes, Deaths())
    assert runner.train(pending(learner), PATIENCE_SECONDS).losses
    runner.close()


def test_a_job_that_fails_is_answered_and_logged_without_its_values():
    answers, theirs = os.pipe()
    module = "service.learning.jobs.training_process"
    command = [sys.executable, "-m", module, "cpu", str(MEMORY), str(theirs)]
    with subprocess.Popen(
        command,
        pass_fds=[theirs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        send(process.stdin, Message({"kind": "judging", "config": {"a canary": 1}}, {}))
        with open(answers, "rb") as pipe:
            answer = receive(pipe)
        process.stdin.close()
        out, errors = process.stdout.read().decode(), process.stderr.read().decode()
    assert answer.header == {"failed": "it raised ValueError"}
    (line,) = [json.loads(line) for line in out.splitlines()]
    assert (line["level"], line["action"]) == ("error", "training_failed")
    assert "canary" not in out + errors
    assert "Traceback" not in errors
    assert process.returncode == 0
