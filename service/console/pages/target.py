"""The target playground: contexts in, decisions of the frozen policy out; nothing is stored."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, File, Form, Request, Response, UploadFile

from service.auth.keys import Scope
from service.auth.tenants import public_name
from service.columns.schema import ColumnType, TableError
from service.console.given_contexts import given_contexts
from service.console.near_rows import near_tables
from service.console.rendering import page
from service.deciding.policies import Served
from service.deciding.scored import spreadsheet
from service.deciding.target import TargetAnswer
from service.errors import BatchTooLarge, InvalidRequest
from service.experiment_spec import ExperimentSpec
from service.reporting.figures import light_of
from service.routes import CallerDep, ExperimentDep, ServicesDep, beside_requests

MOST_SHOWN = 200  # rows on the page; the download has all
MOST_ARMS = 6  # of a row's probabilities

router = APIRouter(prefix="/console/experiments/{name}", include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """The form: text or a file, and from which confidence on the policy decides."""

    text: Annotated[str, Form(max_length=1 << 20)] = ""
    floor: Annotated[float | None, Form(ge=0, le=1)] = None
    download: Annotated[bool, Form()] = False
    file: Annotated[UploadFile | None, File()] = None

    async def content(self) -> tuple[str, bytes]:
        """Name and content of the file; empty without one."""
        return (
            ("", b"") if self.file is None else (self.file.filename or "", await self.file.read())
        )


@router.get("/target")
async def target_page(
    request: Request, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """The form with an example."""
    served = await services.policies.current(experiment.name)
    return _page(request, served, text=_example(served.spec))


@router.post("/target")
async def decide(
    request: Request,
    experiment: ExperimentDep,
    services: ServicesDep,
    caller: CallerDep,
    asked: Annotated[Asked, Depends()],
) -> Response:
    """Decide for what was pasted or dropped, on the page or as a CSV file."""
    served = await services.policies.current(experiment.name)
    name, content = await asked.content()
    try:
        groups = await beside_requests(
            served.spec,
            lambda: given_contexts(served.spec, asked.text, name, content),
            len(asked.text) + len(content),
        )
    except (InvalidRequest, TableError) as error:
        return _page(
            request, served, 422, text=asked.text, floor=asked.floor, refusal=_refusal(error)
        )
    decided = services.target_selecting.select
    try:
        if asked.download:
            _, lines = await decided(served, groups, asked.floor, None, spreadsheet)
            return _file(served.spec, lines)
        _, rows = await decided(served, groups, asked.floor, None, _rows)
    except BatchTooLarge as error:
        return _page(
            request, served, error.status, text=asked.text, floor=asked.floor, refusal=error.detail
        )
    # The rounds come from the log, so they need the scope that may read it.
    may_read_log = Scope.ADMIN in caller.scopes
    near = await near_tables(services, served, groups) if may_read_log else None
    return _page(request, served, rows=rows, text=asked.text, floor=asked.floor, near=near)


def _file(spec: ExperimentSpec, parts: list[bytes]) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{spec.name}-target.csv"'}
    return Response(b"".join(parts), headers=headers, media_type="text/csv")


def _page(
    request: Request,
    served: Served,
    code: int = 200,
    rows: Sequence[dict[str, Any]] = (),
    **shown: Any,
) -> Response:
    return page(
        request,
        "target.html",
        code,
        name=public_name(served.experiment.name),
        experiment=served.experiment,
        spec=served.spec,
        served=served,
        **{"floor": None, "refusal": None, "near": None, **shown},
        rows=rows[:MOST_SHOWN],
        total=len(rows),
        abstained=sum(each["abstained"] for each in rows),
        unit=served.spec.unit,
    )


def _rows(answer: TargetAnswer) -> Iterator[dict[str, Any]]:
    for part in answer.parts():
        for each in part.decisions():
            yield _row(json.loads(msgspec.json.encode(each)))


def _row(decision: dict[str, Any]) -> dict[str, Any]:
    """A decision with its light and its largest probabilities."""
    ranked = sorted(decision["probabilities"].items(), key=lambda each: -each[1])
    light = light_of("expected_reward", decision["transfer_confidence"])
    return {**decision, "light": light, "probabilities": ranked[:MOST_ARMS]}


def _refusal(error: InvalidRequest | TableError) -> str:
    return str(error) if isinstance(error, TableError) else error.explanation


def _example(spec: ExperimentSpec) -> str:
    """A context that the experiment takes, to be changed."""
    if spec.image is not None:
        return ""
    one = _row_of(spec) if spec.table is not None else _zeros(spec.context_shape)
    given: Any = dict.fromkeys(spec.arms, one) if spec.is_per_arm else one
    return f"[{json.dumps(given, ensure_ascii=False)}]"


def _row_of(spec: ExperimentSpec) -> dict[str, Any]:
    assert spec.table is not None  # noqa: S101
    found: dict[str, Any] = {}
    for column in spec.table.columns:
        if column.type is ColumnType.NUMERIC:
            found[column.name] = column.fill or 0
        elif column.type is ColumnType.BOOLEAN:
            found[column.name] = True
        else:
            found[column.name] = column.values[0]
    return found


def _zeros(shape: Sequence[int]) -> Any:
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0
