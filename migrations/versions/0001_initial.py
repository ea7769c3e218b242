"""Experiments, events and snapshots.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_experiments()
    create_events()
    create_snapshots()


def downgrade() -> None:
    op.drop_table("snapshots")
    op.drop_table("events")
    op.drop_table("experiments")


def create_experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("head_offset", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("next_version", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("lease_holder", sa.String(255)),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True)),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", name="pk_experiments"),
        sa.UniqueConstraint("name", name="uq_experiments_name"),
    )


def create_events() -> None:
    op.create_table(
        "events",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("event_offset", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("event_key", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(255)),
        sa.Column("request_hash", sa.String(128)),
        sa.Column("domain", sa.String(16)),
        sa.Column("arm", sa.String(255)),
        sa.Column("reward", sa.Double),
        sa.Column("policy_version", sa.BigInteger),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("context", sa.LargeBinary),
        sa.PrimaryKeyConstraint("experiment_id", "event_offset", name="pk_events"),
        sa.UniqueConstraint("kind", "event_key", name="uq_events_kind_event_key"),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name="fk_events_experiment_id"
        ),
    )
    op.create_index(
        "uq_events_experiment_id_request_id_domain",
        "events",
        ["experiment_id", "request_id", "domain"],
        unique=True,
        postgresql_where=sa.text("request_id IS NOT NULL"),
        sqlite_where=sa.text("request_id IS NOT NULL"),
    )


def create_snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("event_offset", sa.BigInteger, nullable=False),
        sa.Column("encoder_version", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("state_hash", sa.String(128), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("is_pinned", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "version", name="pk_snapshots"),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name="fk_snapshots_experiment_id"
        ),
    )
