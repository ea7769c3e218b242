"""Candidates, judgements of transfer, and indexes for what happened to an experiment and for target rewards.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PARTS = {
    "ix_events_lifecycle": sa.text("kind NOT IN ('decision', 'reward', 'contexts')"),
    "ix_events_target_reward": sa.text("kind = 'reward' AND domain = 'target'"),
}


def upgrade() -> None:
    for name, condition in PARTS.items():
        op.create_index(
            name,
            "events",
            ["experiment_id", "event_offset"],
            postgresql_where=condition,
            sqlite_where=condition,
        )
    op.create_table(
        "candidates",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("episode", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("is_pinned", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "episode", name="pk_candidates"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_candidates_experiment_id",
        ),
    )
    op.create_table(
        "transfers",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("encoder_version", sa.BigInteger, nullable=False),
        sa.Column("event_offset", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "encoder_version", name="pk_transfers"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_transfers_experiment_id",
        ),
    )


def downgrade() -> None:
    op.drop_table("transfers")
    op.drop_table("candidates")
    for name in PARTS:
        op.drop_index(name, "events")
