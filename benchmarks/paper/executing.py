"""Many runs at once: threads that share one GPU, processes that share the CPUs, or a Ray cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.lab import use_threads
from benchmarks.paper.jobs import Job
from benchmarks.paper.playing import ignore
from benchmarks.paper.progress import Progress
from benchmarks.paper.runs import RunsFile
from service.parallel.opening import EngineOptions, opened_engine

Record = dict[str, Any]


def missing_jobs(jobs: Sequence[Job], runs: RunsFile) -> list[Job]:
    """Those that are not among the finished runs."""
    return [job for job in jobs if not runs.has(job.key(), job.continued_rounds)]


def execute(
    jobs: Sequence[Job],
    runs: RunsFile,
    progress: Progress,
    parallel: int = 1,
    processes: int = 0,
    threads: int = 1,
    on_ray: EngineOptions | None = None,
) -> None:
    """Run all of them; each is written when it is finished, even if others fail.

    The failures are raised together when all others are written.
    """
    if on_ray is not None:
        submitted = _by_ray(jobs, on_ray, threads)
    elif processes:
        submitted = _by_processes(jobs, processes, threads)
    else:
        submitted = _by_threads(jobs, parallel, progress)
    failures: list[Exception] = []
    with submitted as futures:
        try:
            for future in as_completed(futures):
                if isinstance(failure := future.exception(), Exception):
                    failure.add_note(f"in the run {futures[future].label}")
                    failures.append(failure)
                    continue
                record = future.result()
                runs.append(record)
                progress.finished(futures[future], record)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(jobs)} runs failed", failures)


@contextmanager
def _by_threads(
    jobs: Sequence[Job], count: int, progress: Progress
) -> Iterator[dict[Future[Record], Job]]:
    with ThreadPoolExecutor(count) as pool:
        yield {pool.submit(partial(_run_on_stream, job, progress.watch)): job for job in jobs}


@contextmanager
def _by_processes(
    jobs: Sequence[Job], count: int, threads: int
) -> Iterator[dict[Future[Record], Job]]:
    context = get_context("spawn")
    with ProcessPoolExecutor(
        count, context, initializer=begin_process, initargs=(threads,)
    ) as pool:
        yield {pool.submit(_run_unwatched, job): job for job in jobs}


@contextmanager
def _by_ray(
    jobs: Sequence[Job], where: EngineOptions, threads: int
) -> Iterator[dict[Future[Record], Job]]:
    with opened_engine(where) as engine:
        assert engine is not None
        yield {engine.submit(partial(_run_begun, threads), job): job for job in jobs}


def _run_begun(threads: int, job: Job) -> Record:
    begin_process(threads)
    return _run_unwatched(job)


def begin_process(threads: int) -> None:
    """Settle what torch reads once, before its first run."""
    use_threads(threads)
    # The window of rounds grows with every update, and blocks that are too small for the next one
    # would stay with the process: a card that several share was full of them.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


def _run_unwatched(job: Job) -> Record:
    return job.run(ignore)


def _run_on_stream(job: Job, watch: Callable[[Job], Callable[[int], None]]) -> Record:
    """On a stream of its own, so that runs do not wait for each other's kernels."""
    is_cuda = job.device_kind == "cuda"
    with torch.cuda.stream(torch.cuda.Stream(job.device)) if is_cuda else nullcontext():
        return job.run(watch(job))
