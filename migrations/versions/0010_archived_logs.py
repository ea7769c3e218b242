"""Segments of archived logs, and the requests in them.

Revision ID: 0010
Revises: 0009

A column and tables are only added. The build before must not run beside this one once a log was
archived: it would not find the archived rounds.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "experiments",
        sa.Column("archived_offset", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "log_segments",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("last_offset", sa.BigInteger, nullable=False),
        sa.Column("first_offset", sa.BigInteger, nullable=False),
        sa.Column("first_key", sa.LargeBinary),
        sa.Column("last_key", sa.LargeBinary),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("last_reward_offset", sa.BigInteger, nullable=False),
        sa.Column("target_rewards", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "last_offset", name="pk_log_segments"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_log_segments_experiment_id",
        ),
    )
    op.create_table(
        "archived_requests",
        sa.Column("experiment_key", sa.BigInteger, nullable=False),
        sa.Column("request_key", sa.BigInteger, nullable=False),
        sa.Column("event_offset", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "experiment_key", "request_key", "event_offset", name="pk_archived_requests"
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    archived = op.get_bind().scalar(
        sa.text("SELECT count(*) FROM experiments WHERE archived_offset > 0")
    )
    if archived:
        raise RuntimeError("the schema before 0010 cannot find archived rounds")
    op.drop_table("archived_requests")
    op.drop_table("log_segments")
    op.drop_column("experiments", "archived_offset")
