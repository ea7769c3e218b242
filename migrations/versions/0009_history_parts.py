"""Parts of histories that are not all in the log yet.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "history_parts",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("first_row", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "sha256", "first_row", name="pk_history_parts"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_history_parts_experiment_id",
        ),
    )


def downgrade() -> None:
    op.drop_table("history_parts")
