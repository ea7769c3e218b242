"""Whose experiments are whose: tenants, and the part of a tenant's experiments that a caller may know.

Inside the service (memory, bus, metrics, logs, command line) an experiment goes by its full name,
`tenant/name`; those of the unnamed tenant by their name alone. Callers say and see the name only,
so tenants may use the same names without ever noticing each other.
"""

import re
from dataclasses import dataclass

from service.errors import NotGranted, UnknownExperiment

SEPARATOR = "/"  # in no tenant's and no experiment's name
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_tenant(text: str) -> bool:
    """Whether a tenant can be called so; the empty text is the unnamed tenant."""
    return not text or TENANT.fullmatch(text) is not None


def public_name(full_name: str) -> str:
    """What its tenant calls an experiment."""
    return full_name.rpartition(SEPARATOR)[2]


@dataclass(frozen=True, slots=True)
class TenantScope:
    """The experiments that a caller may know of: a tenant's, or those of some names among them."""

    tenant: str = ""
    names: frozenset[str] | None = None

    def full_name(self, name: str) -> str:
        """The name inside the service; what is not the caller's is as unknown as what is not there."""
        if (self.names is not None and name not in self.names) or SEPARATOR in name:
            raise UnknownExperiment
        return self._qualified(name)

    def new_full_name(self, name: str) -> str:
        """The same for an experiment to be made, which may be refused without telling if it is there."""
        if self.names is not None and name not in self.names:
            raise NotGranted("The key is not granted for an experiment of this name.")
        return self._qualified(name)

    def holds(self, full_name: str) -> bool:
        """Whether an experiment is in it."""
        tenant, _, name = full_name.rpartition(SEPARATOR)
        return tenant == self.tenant and (self.names is None or name in self.names)

    def _qualified(self, name: str) -> str:
        return f"{self.tenant}{SEPARATOR}{name}" if self.tenant else name


UNNAMED = TenantScope()  # all experiments of the unnamed tenant


def split(full_name: str) -> tuple[TenantScope, str]:
    """The tenant scope and the name of a full name, for the command line."""
    tenant, _, name = full_name.rpartition(SEPARATOR)
    return TenantScope(tenant), name
