"""Which rounds stay in the database, by experiment: the file that a scheduled archiving reads.

[default]
older_than = "90d"

[experiments."lab/doses"]
older_than = "365d"
keep = 1000000

[experiments.pilot]
older_than = "never"
"""

from pathlib import Path
from typing import Annotated

import msgspec

from service.storage.archive.files import ArchivingError

NEVER = "never"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The age from which rounds are archived, and how many of the newest events stay anyway."""

    older_than: Annotated[str, msgspec.Meta(pattern=rf"^(\d{{1,6}}[smhd]|{NEVER})$")] = "30d"
    keep: Annotated[int, msgspec.Meta(ge=0)] = 0


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule for all experiments, and those of single ones by full name."""

    default: Rule = Rule()
    experiments: dict[str, Rule] = {}

    def rule_of(self, name: str) -> Rule:
        """The rule of an experiment."""
        return self.experiments.get(name, self.default)


def read_policy(path: Path) -> Policy:
    """A policy from a TOML file; raises `ArchivingError` if it is none."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Policy)
    except (OSError, msgspec.DecodeError) as error:
        raise ArchivingError(f"{path}: {error}") from error
