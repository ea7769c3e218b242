"""Where the heavy work of learning runs: training and judging encoders."""

from typing import Protocol

from model.judging import Judgement, JudgingJob
from model.learner import Outcome, TrainingJob


class JobRunner(Protocol):
    """Runs one job at a time and returns when it is done: meant to be called from a thread."""

    def train(self, job: TrainingJob) -> Outcome:
        """What comes of an encoder update."""
        ...

    def judge(self, job: JudgingJob) -> Judgement:
        """What is to be said of an encoder's transfer."""
        ...

    def close(self) -> None:
        """Give up the job under way where that is possible; called once, from any thread."""
        ...


class ThreadRunner:
    """Runs jobs in the thread that asks: it shares the interpreter with whoever serves."""

    def train(self, job: TrainingJob) -> Outcome:
        """What comes of an encoder update."""
        return job.run()

    def judge(self, job: JudgingJob) -> Judgement:
        """What is to be said of an encoder's transfer."""
        return job.run()

    def close(self) -> None:
        """Nothing to do: a thread cannot be stopped."""
