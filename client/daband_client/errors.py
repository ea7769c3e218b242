"""What can go wrong; every message names its cause."""

from collections.abc import Mapping
from typing import Any


class DabandError(Exception):
    """The base of all errors of this package."""


class UnreachableError(DabandError, ConnectionError):
    """The service gave no answer; the message names its address and the cause."""


class AnswerError(DabandError):
    """What answered is not a daband service, or not one that this version understands."""


class NotTrainedError(DabandError):
    """Learning fails, or did not end in the time that was given; the message says which."""


class ContextError(DabandError, TypeError):
    """A context cannot be sent as it is; the message says what would help."""


class ProblemError(DabandError):
    """The service refused a call.

    `status` is that of HTTP, `slug` names the kind of problem, `detail` explains it. `errors` are
    the places in the request that are wrong: `pointer` and `detail` of each.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.slug = str(problem.get("type", "")).rpartition("/")[2]
        self.detail = str(problem.get("detail") or problem.get("title") or "")
        errors = problem.get("errors") or []
        self.errors = [dict(each) for each in errors if isinstance(each, Mapping)]
        super().__init__(status, problem)

    def __str__(self) -> str:
        """All that is known, a line for each wrong place."""
        slug = "" if self.slug in ("", "about:blank") else f" {self.slug}"
        places = (f"\n  {each.get('pointer', '')} {each.get('detail', '')}" for each in self.errors)
        return f"{self.status}{slug}: {self.detail}{''.join(places)}"
