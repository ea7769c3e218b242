"""Tenants, and the experiments of a tenant that a caller may access.

Inside the service (memory, bus, metrics, logs, command line) an experiment has its full name,
`tenant/name`; in the unnamed tenant that is the name alone. Callers use and see the name only, so tenants
may use the same names independently.
"""

import re
from dataclasses import dataclass

from service.errors import NotGranted, UnknownExperiment

SEPARATOR = "/"  # not allowed in the names of tenants and experiments
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
EXPERIMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FULL_NAME = re.compile(f"(?:{TENANT.pattern}{SEPARATOR})?{EXPERIMENT.pattern}")


def is_tenant(text: str) -> bool:
    """Whether this is a valid tenant name; the empty text is the unnamed tenant."""
    return not text or TENANT.fullmatch(text) is not None


def is_full_name(text: str) -> bool:
    """Whether an experiment of some tenant can have this full name."""
    return FULL_NAME.fullmatch(text) is not None


def public_name(full_name: str) -> str:
    """The name of an experiment within its tenant."""
    return full_name.rpartition(SEPARATOR)[2]


@dataclass(frozen=True, slots=True)
class TenantScope:
    """The experiments that a caller may access: all of a tenant's, or only those with some names."""

    tenant: str = ""
    names: frozenset[str] | None = None

    def full_name(self, name: str) -> str:
        """The full name of an experiment; one outside the scope is unknown to the caller."""
        if (self.names is not None and name not in self.names) or SEPARATOR in name:
            raise UnknownExperiment
        return self._qualified(name)

    def new_full_name(self, name: str) -> str:
        """The full name of a new experiment; a refusal does not reveal whether it exists."""
        if self.names is not None and name not in self.names:
            raise NotGranted("The key is not granted for an experiment of this name.")
        return self._qualified(name)

    def holds(self, full_name: str) -> bool:
        """Whether an experiment is in the scope."""
        tenant, _, name = full_name.rpartition(SEPARATOR)
        return tenant == self.tenant and (self.names is None or name in self.names)

    def _qualified(self, name: str) -> str:
        return f"{self.tenant}{SEPARATOR}{name}" if self.tenant else name


UNNAMED = TenantScope()  # all experiments of the unnamed tenant


def split(full_name: str) -> tuple[TenantScope, str]:
    """The tenant scope and the name of a full name, for the command line."""
    tenant, _, name = full_name.rpartition(SEPARATOR)
    return TenantScope(tenant), name
