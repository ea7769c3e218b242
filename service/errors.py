"""Everything that can go wrong for a caller, as RFC 9457 problem types.

A subclass names the problem (`slug`, `title`, `status`); its docstring is the default detail.
Facts about one occurrence are keyword fields and become extension members of the body. Values
the caller sent are never among them.
"""

import inspect
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn


class ServiceError(Exception):
    """The service could not do what was asked."""

    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    retry_after_seconds: int | None = None

    def __init__(self, detail: str | None = None, **members: Any) -> None:
        self.detail = detail or self.default_detail()
        self.members = members
        super().__init__(self.detail)

    @classmethod
    def default_detail(cls) -> str:
        """The class's docstring: what this problem means."""
        return inspect.cleandoc(cls.__doc__ or cls.title)

    @classmethod
    def problem_type(cls) -> str:
        """The path under which the problem is explained."""
        return f"/problems/{cls.slug}"

    def problem(self) -> dict[str, Any]:
        """The body of the answer, less `instance` and `request_id`, which the border adds."""
        return {
            **self.members,
            "type": self.problem_type(),
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }


class UnknownExperiment(ServiceError):
    """There is no experiment of this name."""

    slug = "unknown-experiment"
    title = "Unknown experiment"
    status = 404


class UnknownDecision(ServiceError):
    """There is no decision with this id."""

    slug = "unknown-decision"
    title = "Unknown decision"
    status = 404


class UnknownSnapshot(ServiceError):
    """There is no snapshot of this version; it may have been pruned."""

    slug = "unknown-snapshot"
    title = "Unknown snapshot"
    status = 404


class DamagedSnapshot(ServiceError):
    """The stored bytes of this snapshot are not those that were saved; nothing was done."""

    slug = "damaged-snapshot"
    title = "Damaged snapshot"
    status = 409


class UnknownCandidate(ServiceError):
    """There is no such candidate encoder; it may have been pruned, or serve already."""

    slug = "unknown-candidate"
    title = "Unknown candidate"
    status = 404


class NothingToTrainOn(ServiceError):
    """The experiment has no reward yet: an encoder is trained on rewards of the source."""

    slug = "nothing-to-train-on"
    title = "Nothing to train on"
    status = 409


class UnknownEvaluation(ServiceError):
    """There is no evaluation with this id."""

    slug = "unknown-evaluation"
    title = "Unknown evaluation"
    status = 404


class EvaluationUnfinished(ServiceError):
    """The evaluation has no result: it is not done yet, failed or was cancelled."""

    slug = "evaluation-unfinished"
    title = "Evaluation unfinished"
    status = 409


class ExperimentExists(ServiceError):
    """An experiment of this name exists already."""

    slug = "experiment-exists"
    title = "Experiment exists"
    status = 409


class TooManyExperiments(ServiceError):
    """There are as many experiments as may be: delete one, or have the operator raise the quota."""

    slug = "too-many-experiments"
    title = "Too many experiments"
    status = 409


class ExperimentPaused(ServiceError):
    """The experiment is paused: it takes rewards, but no new decisions."""

    slug = "experiment-paused"
    title = "Experiment paused"
    status = 409


class ExperimentArchived(ServiceError):
    """The experiment is archived: it can be read and exported, and takes nothing new."""

    slug = "experiment-archived"
    title = "Experiment archived"
    status = 409


class RequestConflict(ServiceError):
    """This id was used before with another body; the first one stands."""

    slug = "request-conflict"
    title = "Request conflict"
    status = 409


class RewardConflict(ServiceError):
    """This decision has another reward already; the first one stands."""

    slug = "reward-conflict"
    title = "Reward conflict"
    status = 409


class StaleEpoch(ServiceError):
    """Another trainer has taken the experiment over; what the old one writes is refused."""

    slug = "stale-epoch"
    title = "Stale epoch"
    status = 409


class VersionConflict(ServiceError):
    """Another snapshot was saved in the meantime under the version that was expected."""

    slug = "version-conflict"
    title = "Version conflict"
    status = 409


class PhaseConflict(ServiceError):
    """The phase moves one way, from zero_shot to continued, and its best reward is declared once."""

    slug = "phase-conflict"
    title = "Phase conflict"
    status = 409


class TargetRewardForbidden(ServiceError):
    """Target rewards are closed in the zero-shot phase; the value was stored nowhere."""

    slug = "target-reward-forbidden"
    title = "Target reward forbidden"
    status = 403


class KeyRequired(ServiceError):
    """This call needs a key: send it as `Authorization: Bearer daband_…`."""

    slug = "key-required"
    title = "Key required"
    status = 401
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="daband"'})


class KeyRefused(ServiceError):
    """The key is wrong, has expired or was revoked."""

    slug = "key-refused"
    title = "Key refused"
    status = 401
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="daband", error="invalid_token"'})


class NotGranted(ServiceError):
    """The key does not allow this; `scope` names what it lacks."""

    slug = "not-granted"
    title = "Not granted"
    status = 403


class OriginRefused(ServiceError):
    """A page of another origin asked a service that needs no key; nothing was done."""

    slug = "origin-refused"
    title = "Origin refused"
    status = 403


class RateLimited(ServiceError):
    """The key has sent more requests than its limit allows; nothing was done."""

    slug = "rate-limited"
    title = "Rate limited"
    status = 429

    def __init__(self, detail: str | None = None, *, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_seconds = max(1, retry_after_seconds)


class UnknownKey(ServiceError):
    """There is no key with this id."""

    slug = "unknown-key"
    title = "Unknown key"
    status = 404


class KeyRevoked(ServiceError):
    """The key was revoked for good: make another one."""

    slug = "key-revoked"
    title = "Key revoked"
    status = 409


class InvalidRequest(ServiceError):
    """The request does not have the shape that the service expects."""

    slug = "invalid-request"
    title = "Invalid request"
    status = 422


class PayloadTooLarge(ServiceError):
    """The body is larger than the service accepts."""

    slug = "payload-too-large"
    title = "Payload too large"
    status = 413


class UnsupportedMediaType(ServiceError):
    """The body's media type or encoding is not one the service reads."""

    slug = "unsupported-media-type"
    title = "Unsupported media type"
    status = 415


class UploadStalled(ServiceError):
    """The upload stopped arriving; nothing of it counts, and it is safe to send it again."""

    slug = "upload-stalled"
    title = "Upload stalled"
    status = 408


class Unavailable(ServiceError):
    """The service cannot answer now; the same request may succeed later."""

    slug = "unavailable"
    title = "Unavailable"
    status = 503
    retry_after_seconds = 1

    def __init__(
        self, detail: str | None = None, *, retry_after_seconds: int | None = None, **members: Any
    ) -> None:
        super().__init__(detail, **members)
        if retry_after_seconds is not None:
            self.retry_after_seconds = retry_after_seconds


class Overloaded(Unavailable):
    """More work is waiting than the service takes on; nothing was done."""

    slug = "overloaded"
    title = "Overloaded"


class StorageUnavailable(Unavailable):
    """The database did not answer in time; it is safe to send the same request again."""

    slug = "storage-unavailable"
    title = "Storage unavailable"


class NotReady(Unavailable):
    """The service is starting up or shutting down."""

    slug = "not-ready"
    title = "Not ready"


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
    """The body for a plain HTTP error, whose status says it all."""
    known = HTTPStatus(status)
    return {
        "type": "about:blank",
        "title": known.phrase,
        "status": status,
        "detail": f"{known.description or known.phrase}.",
    }


def occurrence(request_id: str) -> dict[str, Any]:
    """The members that say which request a problem came of."""
    return {"instance": f"urn:daband:request:{request_id}", "request_id": request_id}


def refuse(detail: str, pointer: str = "#") -> NoReturn:
    """Raise `InvalidRequest` for one place of the request."""
    raise InvalidRequest(errors=[{"detail": detail, "pointer": pointer}])


def refuse_numbers(shape: tuple[int, ...], pointer: str = "#") -> NoReturn:
    """Refuse what should be a context of this shape, or contexts."""
    refuse(f"Expected finite float32 numbers of shape {list(shape)}.", pointer)
