"""The named methods as configurations: what a system changes over the defaults.

Vectors and images have one configuration each, fixed without a look at target rewards; see
docs/results.md for the signs that they rest on.
"""

from collections.abc import Mapping
from typing import Any

from model.config import BanditConfig

Values = Mapping[str, Any]

_DABAND: Values = {
    "regression_weight": 0.1,
    "prediction_weight": 0.01,
    "divergence_weight": 1.0,
    "divergence_ramp": 10,
}

SYSTEMS: Mapping[str, Values] = {
    "linucb": {"encoder": "identity", "steps_per_episode": 0},
    "linucb-p": {"encoder": "pca", "steps_per_episode": 0},
    "nlinucb": {},
    "nlinucb-p": {"encoder": "pca-mlp"},
    "daband": _DABAND,
    "daband-plus": {**_DABAND, "consistency_weight": 2.0},
}

# Vectors: the wider bonus earns more on the source, for each encoder that learns.
_WIDE: Values = {"alpha": 0.5}
# No strength of alignment is right for all data sets, and there is little data to tell; towers that
# differ in it err less together than any one of them (see `towers`), and so does an average over the
# last updates. Views keep the few subjects from being learned by heart; seeds agree more by views that
# leave out much (decision 0044).
_COMMITTEE: Values = {
    **_WIDE,
    "encoder": "committee",
    "tower_count": 8,
    "latent_size": 128,
    "hidden_sizes": (64, 64),
    "balance_classes": False,
    "average_decay": 0.999,
    "view_rounds": True,
    "view_dropout": 0.5,
    "distil_head": True,
}
_ON_VECTORS: Mapping[str, Values] = {
    "nlinucb": _WIDE,
    "nlinucb-p": _WIDE,
    "daband": _COMMITTEE,
    # With a teacher, seeds agree more by twice as many towers of half the width (decision 0039).
    "daband-plus": {**_COMMITTEE, "tower_count": 16},
}

# Images: classes that nobody has pulled yet are found only with a wide bonus; many more contexts
# are worth keeping, and the discriminator needs a slow start.
_IMAGES: Values = {"alpha": 0.5, "batch_size": 128, "reservoir_size": 20_000}
_ON_IMAGES: Mapping[str, Values] = {
    **dict.fromkeys(SYSTEMS, _IMAGES),
    "daband": {**_IMAGES, "divergence_ramp": 300, "balance_classes": False},
    "daband-plus": {
        **_IMAGES,
        # With a teacher, seeds agree more by strides in place of pools, and by its head (decision 0051).
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


def system_config(name: str, **values: Any) -> BanditConfig:
    """The configuration of a named system for one experiment; `values` win over the system's."""
    if name not in SYSTEMS:
        raise ValueError(f"method: must be one of {', '.join(SYSTEMS)}")
    shape = values.get("context_shape", ())
    is_image = isinstance(shape, list | tuple) and len(shape) == 3
    own = _ON_IMAGES[name] if is_image else _ON_VECTORS.get(name, {})
    return BanditConfig.from_mapping({**SYSTEMS[name], **own, **values})
