"""Rows of the experiments that a caller may know of."""

import sqlalchemy as sa

from service.auth.tenants import SEPARATOR, Realm


def is_within(name: sa.ColumnElement[str], realm: Realm) -> sa.ColumnElement[bool]:
    """Whether a column's full name is that of an experiment in a realm."""
    if realm.names is not None:
        return name.in_(sorted(map(realm.full_name, realm.names)))
    if not realm.tenant:
        return sa.not_(name.contains(SEPARATOR))
    prefix = f"{realm.tenant}{SEPARATOR}"
    return sa.func.substr(name, 1, len(prefix)) == prefix  # LIKE would not mind upper case
