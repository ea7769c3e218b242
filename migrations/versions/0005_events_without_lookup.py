"""Events without a foreign key, which Postgres looks up for each of them.

Revision ID: 0005
Revises: 0004

The experiment's row is locked by the transaction that appends, so it is there. SQLite keeps the key: to drop
it would be to copy the log.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = "fk_events_experiment_id"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(_NAME, "events", type_="foreignkey")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_foreign_key(_NAME, "events", "experiments", ["experiment_id"], ["experiment_id"])
