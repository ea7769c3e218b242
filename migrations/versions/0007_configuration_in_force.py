"""The configuration in force of each experiment, and the recipe that it was resolved by.

Revision ID: 0007
Revises: 0006

Existing rows are resolved once, by recipe 1: what the methods meant in the build before. Its values
are repeated here, since those of the model change. A row that recipe 1 cannot resolve stays without,
and so does one that the build before adds beside this one: a trainer resolves it.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

RECIPE = 1
DEFAULTS: Mapping[str, Any] = {
    "exclusive_rewards": False,
    "ridge": 1.0,
    "alpha": 0.05,
    "epsilon": 0.05,
    "encoder": "auto",
    "latent_size": 64,
    "hidden_sizes": [128, 128],
    "tower_count": 1,
    "component_count": 64,
    "episode_length": 64,
    "steps_per_episode": 64,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "objective": "head",
    "regression_weight": 0.0,
    "prediction_weight": 0.0,
    "divergence_weight": 0.0,
    "divergence_ramp": 40,
    "balance_classes": True,
    "consistency_weight": 0.0,
    "view_rounds": False,
    "view_dropout": 0.1,
    "teacher_decay": 0.99,
    "average_decay": 0.0,
    "confidence_floor": 0.9,
    "distil_head": False,
    "statistics": "rebuild",
    "rebuild_window": 20_000,
    "reservoir_size": 4096,
    "holdout_share": 0.125,
    "gate": "auto",
    "gate_margin": 0.05,
    "gate_rank": 1.1,
}
DABAND = {
    "regression_weight": 0.1,
    "prediction_weight": 0.01,
    "divergence_weight": 1.0,
    "divergence_ramp": 10,
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "linucb": {"encoder": "identity", "steps_per_episode": 0},
    "linucb-p": {"encoder": "pca", "steps_per_episode": 0},
    "nlinucb": {},
    "nlinucb-p": {"encoder": "pca-mlp"},
    "daband": DABAND,
    "daband-plus": {**DABAND, "consistency_weight": 2.0},
}
COMMITTEE = {
    "alpha": 0.5,
    "encoder": "committee",
    "tower_count": 8,
    "latent_size": 128,
    "hidden_sizes": [64, 64],
    "balance_classes": False,
    "average_decay": 0.999,
    "view_rounds": True,
    "view_dropout": 0.5,
    "distil_head": True,
}
ON_VECTORS: Mapping[str, Mapping[str, Any]] = {
    "nlinucb": {"alpha": 0.5},
    "nlinucb-p": {"alpha": 0.5},
    "daband": COMMITTEE,
    "daband-plus": {**COMMITTEE, "tower_count": 16},
}
IMAGES = {"alpha": 0.5, "batch_size": 128, "reservoir_size": 20_000}
ON_IMAGES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(METHODS, IMAGES),
    "daband": {**IMAGES, "divergence_ramp": 300, "balance_classes": False},
    "daband-plus": {
        **IMAGES,
        "encoder": "strided-conv",
        "batch_size": 112,
        "distil_head": True,
        "divergence_weight": 0.3,
        "divergence_ramp": 100,
        "balance_classes": False,
        "consistency_weight": 3.0,
        "view_rounds": True,
        "learning_rate": 2e-3,
        "average_decay": 0.9995,
    },
}


def upgrade() -> None:
    op.add_column("experiments", sa.Column("config", sa.Text))
    op.add_column("experiments", sa.Column("recipe", sa.BigInteger))
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT experiment_id, spec FROM experiments")).all()
    statement = sa.text(
        "UPDATE experiments SET config = :config, recipe = :recipe WHERE experiment_id = :id"
    )
    for experiment_id, spec in rows:
        config = resolved(json.loads(spec))
        if config is not None:
            text = json.dumps(config, sort_keys=True, separators=(",", ":"))
            values = {"id": experiment_id, "config": text, "recipe": RECIPE}
            connection.execute(statement, values)


def downgrade() -> None:
    for column in ("recipe", "config"):
        op.drop_column("experiments", column)


def resolved(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The whole configuration of a declaration; none if recipe 1 has no such method or field."""
    method, declared = spec.get("method"), spec.get("config", {})
    if method not in METHODS or not declared.keys() <= DEFAULTS.keys():
        return None
    shape = spec["context"]["shape"]
    own = ON_IMAGES if len(shape) == 3 else ON_VECTORS
    return {
        "arm_count": max(1, len(spec["arms"])),
        "context_shape": shape,
        "context_kind": spec["context"]["kind"],
        **DEFAULTS,
        **METHODS[method],
        **own.get(method, {}),
        **declared,
    }
