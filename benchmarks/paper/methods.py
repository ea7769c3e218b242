"""What is run: the zero-shot methods and the ablation's columns, each a system with changed fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.datasets.task import TransferTask
from model.config import BanditConfig, system_config


@dataclass(frozen=True, slots=True)
class Method:
    """A system of `model/config.py` with some fields changed."""

    name: str
    system: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def values(self, task: TransferTask) -> dict[str, Any]:
        """The fields that are set on top of the system's own.

        ε = 0: the paper's rule is deterministic.
        """
        return {"epsilon": 0.0, **self.changes, **task.config_values()}

    def config(self, task: TransferTask) -> BanditConfig:
        """The configuration on a task."""
        return system_config(self.system, **self.values(task))


# The paper's linear methods scale nothing. φ = identity never changes, so nothing falls due between
# episodes: one episode spans all rounds and the choices are the same.
_UNCHANGING = {"encoder": "identity", "episode_length": 1 << 20, "rebuild_window": 1 << 16}

ZERO_SHOT = (
    Method("linucb", "linucb", _UNCHANGING),
    Method("linucb-p", "linucb-p", {"encoder": "pca"}),
    Method("nlinucb", "nlinucb"),
    Method("nlinucb-p", "nlinucb-p"),
    Method("daband", "daband"),
    # daband-plus without any loss on target contexts. On vectors daband-plus has none: the two are one there.
    Method("nlinucb + ensemble", "daband-plus", {"consistency_weight": 0.0}),
    Method("daband-plus", "daband-plus"),
)

# The paper as printed; benchmarks.trust plays it.
PRINTED = Method("daband-paper", "daband-paper")

# The target's rewards from the first round on, and no source at all: what a head start is worth.
SCRATCH = Method("nlinucb from scratch", "nlinucb")

_TERMS = {"R": "regression_weight", "P": "prediction_weight", "D": "divergence_weight"}


def _without(letters: str) -> Method:
    """daband without some of its terms; all else stays as daband has it."""
    name = "w/o " + "&".join(letters)
    return Method(name, "daband", {_TERMS[letter]: 0.0 for letter in letters})


# In the paper's order. `full` is the run of `daband`. Without all three terms it is daband's own
# configuration, not nlinucb's: the other values of the two systems may differ.
ABLATION: Mapping[str, Method] = {
    **{method.name: method for method in map(_without, ("RPD", "RP", "RD", "PD", "R", "P", "D"))},
    "full": Method("daband", "daband"),
}

BY_NAME: Mapping[str, Method] = {
    method.name: method for method in (*ZERO_SHOT, PRINTED, *ABLATION.values(), SCRATCH)
}
# What negative transfer is judged by: both against the first.
PAIR_METHODS = ("nlinucb", "daband", "daband-plus")
