"""SQL conditions for tenant scopes."""

import sqlalchemy as sa

from service.auth.tenants import SEPARATOR, TenantScope


def is_within(name: sa.ColumnElement[str], tenant_scope: TenantScope) -> sa.ColumnElement[bool]:
    """Whether a column holds the full name of an experiment in the tenant scope."""
    if tenant_scope.names is not None:
        return name.in_(sorted(map(tenant_scope.full_name, tenant_scope.names)))
    if not tenant_scope.tenant:
        return sa.not_(name.contains(SEPARATOR))
    prefix = f"{tenant_scope.tenant}{SEPARATOR}"
    return sa.func.substr(name, 1, len(prefix)) == prefix  # LIKE ignores case on SQLite
