"""The manifest of a policy file, read without torch: commands that only show it start at once."""

import json
from typing import Any

from model.state.tensor_bytes import SnapshotError, metadata_of

FORMAT = "daband-target-policy"
FORMAT_VERSION = 1


def is_policy_file(content: bytes) -> bool:
    """Whether this is a policy file and not a whole snapshot."""
    try:
        manifest_of(content)
    except SnapshotError:
        return False
    return True


def manifest_of(content: bytes) -> dict[str, Any]:
    """The manifest of a policy file."""
    try:
        manifest: dict[str, Any] = json.loads(metadata_of(content)["manifest"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError("not a policy file") from error
    if (manifest.get("format"), manifest.get("format_version")) != (FORMAT, FORMAT_VERSION):
        raise SnapshotError("not a policy file of this format")
    return manifest
