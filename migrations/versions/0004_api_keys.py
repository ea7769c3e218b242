"""API keys, their secrets as hashes, and what happened to them.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("label", sa.String(255), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("experiments", sa.Text),
        sa.Column("scopes", sa.String(255), nullable=False),
        sa.Column("requests_per_second", sa.Double, nullable=False),
        sa.Column("burst", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
    )
    op.create_table(
        "key_secrets",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("sha256", name="pk_key_secrets"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.key_id"], name="fk_key_secrets_key_id"),
    )
    op.create_table(
        "key_changes",
        sa.Column("change_id", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("made_by", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name="pk_key_changes"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.key_id"], name="fk_key_changes_key_id"),
    )


def downgrade() -> None:
    for name in ("key_changes", "key_secrets", "api_keys"):
        op.drop_table(name)
