"""All errors that callers see, as RFC 9457 problem types.

A subclass is one problem: its name gives slug and title, its docstring the default detail. Facts about
one occurrence are keyword fields and become extension members of the body. They never include values
that the caller sent.
"""

import inspect
import re
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

MAX_QUOTED_NAME = 64  # characters of an unknown field's name


class ServiceError(Exception):
    """The service could not do what was asked."""

    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    retry_after_seconds: int | None = None

    def __init_subclass__(cls, status: int | None = None) -> None:
        words = re.findall("[A-Z][a-z]*", cls.__name__)
        cls.slug = "-".join(words).lower()
        cls.title = " ".join(words).capitalize()
        cls.status = status or cls.status

    def __init__(self, detail: str | None = None, **members: Any) -> None:
        self.detail = detail or self.default_detail()
        self.members = members
        super().__init__(self.detail)

    @classmethod
    def default_detail(cls) -> str:
        """The class's docstring: what this problem means."""
        return inspect.cleandoc(cls.__doc__ or cls.title)

    @property
    def explanation(self) -> str:
        """What is wrong at which place of the request; without places the detail."""
        places = self.members.get("errors", [])
        return "; ".join(f"{each['pointer']} {each['detail']}" for each in places) or self.detail

    @classmethod
    def problem_type(cls) -> str:
        """The path under which the problem is explained."""
        return f"/problems/{cls.slug}"

    def problem(self) -> dict[str, Any]:
        """The body of the answer without `instance` and `request_id`."""
        return {
            **self.members,
            "type": self.problem_type(),
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }


class UnknownExperiment(ServiceError, status=404):
    """There is no experiment of this name."""


class UnknownDecision(ServiceError, status=404):
    """There is no decision with this id."""


class UnknownSnapshot(ServiceError, status=404):
    """There is no snapshot of this version; it may have been pruned."""


class DamagedSnapshot(ServiceError, status=409):
    """The stored bytes of this snapshot are not those that were saved; nothing was done."""


class DamagedArchive(ServiceError, status=409):
    """A file of archived rounds is missing or has changed, so that they cannot be read."""


class UnknownCandidate(ServiceError, status=404):
    """There is no such candidate encoder; it may have been pruned, or serve already."""


class NothingToTrainOn(ServiceError, status=409):
    """The experiment has no reward yet, and encoders are trained on rewards."""


class UnknownEvaluation(ServiceError, status=404):
    """There is no evaluation with this id."""


class EvaluationUnfinished(ServiceError, status=409):
    """The evaluation has no result: it is not done yet, failed or was cancelled."""


class ExperimentExists(ServiceError, status=409):
    """An experiment of this name exists already."""


class TooManyExperiments(ServiceError, status=409):
    """The quota of experiments is used up: delete one, or ask the operator to raise the quota."""


class ExperimentPaused(ServiceError, status=409):
    """The experiment is paused: it accepts rewards, but no new decisions."""


class ExperimentArchived(ServiceError, status=409):
    """The experiment is archived: it can be read and exported, but accepts nothing new."""


class RequestConflict(ServiceError, status=409):
    """This id was used before with another body; the first one stands."""


class RewardConflict(ServiceError, status=409):
    """This decision already has another reward; the first one stands."""


class DecisionArchived(ServiceError, status=409):
    """The decision was archived without a reward, and takes none any more."""


class StaleEpoch(ServiceError, status=409):
    """Another trainer has taken over the experiment; writes of the old one are refused."""


class VersionConflict(ServiceError, status=409):
    """Another snapshot was saved under this version in the meantime."""


class PhaseConflict(ServiceError, status=409):
    """The phase changes only from zero_shot to continued, and its best reward is declared once."""


class TargetRewardForbidden(ServiceError, status=403):
    """Target rewards are refused in the zero-shot phase; the value was not stored."""


class KeyRequired(ServiceError, status=401):
    """This call needs a key: send it as `Authorization: Bearer daband_…`."""

    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="daband"'})


class KeyRefused(ServiceError, status=401):
    """The key is wrong, has expired or was revoked."""

    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="daband", error="invalid_token"'})


class NotGranted(ServiceError, status=403):
    """The key does not allow this; `scope` names the missing scope."""


class OriginRefused(ServiceError, status=403):
    """A page of another origin sent this; nothing was done."""


class RateLimited(ServiceError, status=429):
    """The key has sent more requests than its limit allows; nothing was done."""

    def __init__(self, retry_after_seconds: int = 1) -> None:
        super().__init__()
        self.retry_after_seconds = retry_after_seconds


class UnknownKey(ServiceError, status=404):
    """There is no key with this id."""


class KeyRevoked(ServiceError, status=409):
    """The key was revoked and cannot be used again: create another one."""


class InvalidRequest(ServiceError, status=422):
    """The request does not have the shape that the service expects."""


class EvaluationRefused(ServiceError, status=400):
    """A flag cannot be evaluated; `errorCode` says why, in the words of OpenFeature."""


class PayloadTooLarge(ServiceError, status=413):
    """The body is larger than the service accepts."""


class BatchTooLarge(ServiceError, status=413):
    """Deciding all of this would take more than one request may; nothing was done."""


class UnsupportedMediaType(ServiceError, status=415):
    """The service does not read this media type or encoding."""


class UploadStalled(ServiceError, status=408):
    """The upload stopped arriving; nothing was stored, and it is safe to send it again."""


class Unavailable(ServiceError, status=503):
    """The service cannot answer now; the same request may succeed later."""

    retry_after_seconds = 1


class Overloaded(Unavailable):
    """The service has too much pending work; nothing was done."""


class StorageUnavailable(Unavailable):
    """The database did not answer in time; it is safe to send the same request again."""


class NotReady(Unavailable):
    """The service is starting up or shutting down."""


def problem_types() -> dict[str, type[ServiceError]]:
    """Every problem by its slug, for the documentation and the `/problems` pages."""
    found: dict[str, type[ServiceError]] = {}
    pending: list[type[ServiceError]] = [ServiceError]
    while pending:
        kind = pending.pop()
        found[kind.slug] = kind
        pending.extend(kind.__subclasses__())
    return dict(sorted(found.items()))


def plain_problem(status: int) -> dict[str, Any]:
    """The body for a plain HTTP error."""
    known = HTTPStatus(status)
    return {
        "type": "about:blank",
        "title": known.phrase,
        "status": status,
        "detail": f"{known.description or known.phrase}.",
    }


def occurrence(request_id: str) -> dict[str, Any]:
    """The members that name the request of a problem."""
    return {"instance": f"urn:daband:request:{request_id}", "request_id": request_id}


def refuse(detail: str, pointer: str = "#") -> NoReturn:
    """Raise `InvalidRequest` for one field of the request."""
    raise InvalidRequest(errors=[{"detail": detail, "pointer": pointer}])


def refuse_numbers(shape: tuple[int, ...], pointer: str) -> NoReturn:
    """Refuse values that are not contexts of this shape."""
    refuse(f"Expected finite float32 numbers of shape {list(shape)}.", pointer)
