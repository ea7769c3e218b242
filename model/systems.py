"""The named methods as configurations: what a system changes over the defaults."""

from collections.abc import Mapping
from typing import Any

from model.config import BanditConfig

_DABAND: Mapping[str, Any] = {
    "regression_weight": 0.1,
    "prediction_weight": 0.01,
    "divergence_weight": 1.0,
    "divergence_ramp": 10,
}

SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "linucb": {"encoder": "identity", "steps_per_episode": 0},
    "linucb-p": {"encoder": "pca", "steps_per_episode": 0},
    "nlinucb": {},
    "nlinucb-p": {"encoder": "pca-mlp"},
    "daband": _DABAND,
    "daband-plus": {**_DABAND, "divergence_weight": 0.1, "consistency_weight": 1.0},
}


def system_config(name: str, **values: Any) -> BanditConfig:
    """The configuration of a named system for one experiment; `values` win over the system's."""
    if name not in SYSTEMS:
        raise ValueError(f"method: must be one of {', '.join(SYSTEMS)}")
    return BanditConfig.from_mapping({**SYSTEMS[name], **values})
