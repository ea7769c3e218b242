"""Rows of the experiments that a caller may know of."""

import sqlalchemy as sa

from service.auth.tenants import SEPARATOR, TenantScope


def is_within(name: sa.ColumnElement[str], tenant_scope: TenantScope) -> sa.ColumnElement[bool]:
    """Whether a column's full name is that of an experiment in a tenant scope."""
    if tenant_scope.names is not None:
        return name.in_(sorted(map(tenant_scope.full_name, tenant_scope.names)))
    if not tenant_scope.tenant:
        return sa.not_(name.contains(SEPARATOR))
    prefix = f"{tenant_scope.tenant}{SEPARATOR}"
    return sa.func.substr(name, 1, len(prefix)) == prefix  # LIKE would not mind upper case
