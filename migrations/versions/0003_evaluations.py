"""Offline evaluations as jobs.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "evaluations",
        sa.Column("evaluation_id", sa.String(64), nullable=False),
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(255)),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("total", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("holder", sa.String(255)),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("problem", sa.Text),
        sa.Column("result", sa.Text),
        sa.PrimaryKeyConstraint("evaluation_id", name="pk_evaluations"),
        sa.UniqueConstraint(
            "experiment_id", "request_id", name="uq_evaluations_experiment_id_request_id"
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name="fk_evaluations_experiment_id"
        ),
    )


def downgrade() -> None:
    op.drop_table("evaluations")
