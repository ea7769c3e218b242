"""The key that signs snapshots in Redis, where others may be able to write.

Revision ID: 0011
Revises: 0010

A table is only added. The build before does not read it; it and this one refuse each other's values in
Redis and read the database instead.
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

KEY_BYTES = 32


def upgrade() -> None:
    keys = op.create_table(
        "snapshot_keys",
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("secret", name="pk_snapshot_keys"),
    )
    op.bulk_insert(keys, [{"secret": secrets.token_bytes(KEY_BYTES)}])


def downgrade() -> None:
    op.drop_table("snapshot_keys")
