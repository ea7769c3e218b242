"""A policy as a file."""

import asyncio
import hashlib
import json

from fastapi import Response

from model import SnapshotError, exported, manifest_of
from service.codec.bodies import MediaType
from service.errors import ServiceError
from service.experiment_spec import ExperimentSpec
from service.records import Experiment

MANIFEST_HEADER = "X-Policy-Manifest"


async def policy_answer(experiment: Experiment, snapshot: bytes, suffix: str) -> Response:
    """The target policy of a snapshot, for download as `<experiment>-<suffix>`."""
    spec = ExperimentSpec.of(experiment)
    facts = spec.export_facts()
    try:
        content = await asyncio.to_thread(exported, snapshot, facts)
    except SnapshotError as error:
        raise ServiceError("The stored snapshot is damaged.") from error
    digest = hashlib.sha256(content).hexdigest()
    headers = {
        MANIFEST_HEADER: json.dumps({**manifest_of(content), "sha256": digest}),
        "Content-Disposition": f'attachment; filename="{spec.name}-{suffix}.safetensors"',
        "ETag": f'"{digest}"',
    }
    return Response(content, headers=headers, media_type=MediaType.BYTES)
