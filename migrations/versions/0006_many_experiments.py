"""One lease for each trainer, what is due of each experiment, failures of learning, an audit trail, and parts of large blobs.

Revision ID: 0006
Revises: 0005

Columns and tables are only added, so that the build before goes on beside this one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "experiments",
        sa.Column("folded_offset", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.add_column(
        "experiments",
        sa.Column("is_unfinished", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.execute(
        "UPDATE experiments SET folded_offset = coalesce((SELECT max(event_offset) FROM snapshots"
        " WHERE snapshots.experiment_id = experiments.experiment_id), 0)"
    )
    # Each is looked at once; a trainer that finds nothing to do says so.
    op.execute(sa.text("UPDATE experiments SET is_unfinished = :yes").bindparams(yes=True))
    op.create_table(
        "trainers",
        sa.Column("trainer_id", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("trainer_id", name="pk_trainers"),
    )
    op.create_table(
        "learning_failures",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", name="pk_learning_failures"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name="fk_learning_failures_experiment_id",
        ),
    )
    op.create_table(
        "blob_parts",
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "sha256", "number", name="pk_blob_parts"),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name="fk_blob_parts_experiment_id"
        ),
    )
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.String(64), nullable=False),
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("act", sa.String(16), nullable=False),
        sa.Column("made_by", sa.String(255)),
        sa.Column("reason", sa.Text),
        sa.Column("key_id", sa.String(32)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name="pk_audit"),
    )
    op.create_index("ix_audit_experiment_id", "audit", ["experiment_id"])


def downgrade() -> None:
    for name in ("audit", "blob_parts", "learning_failures", "trainers"):
        op.drop_table(name)
    for column in ("is_unfinished", "folded_offset"):
        op.drop_column("experiments", column)
