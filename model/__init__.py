"""The algorithm: domain-adaptive neural contextual bandits, without clocks, I/O or state beside its objects.

Other packages import its public names from here. Each is loaded on first use, because torch takes
a second to load and not every program needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.bandit.policy import Policy as Policy
    from model.bandit.selection import entropy as entropy
    from model.budget import GROWS_WITH as GROWS_WITH, Budget as Budget, estimated as estimated
    from model.config import (
        RECIPE as RECIPE,
        SYSTEMS as SYSTEMS,
        BanditConfig as BanditConfig,
        CarriedOver as CarriedOver,
        ContextKind as ContextKind,
        GateRule as GateRule,
        Recipe as Recipe,
        StoredConfig as StoredConfig,
        carried_over as carried_over,
    )
    from model.learner import Learner as Learner, Outcome as Outcome, TrainingJob as TrainingJob
    from model.randomness import draw_keys as draw_keys
    from model.rounds import (
        Booleans as Booleans,
        Domain as Domain,
        Doubles as Doubles,
        Floats as Floats,
        Integers as Integers,
        Keys as Keys,
        Phase as Phase,
        RoundBlock as RoundBlock,
        Scores as Scores,
        Selection as Selection,
        TargetSelection as TargetSelection,
        checked_contexts as checked_contexts,
    )
    from model.simulate import ClusterWorld as ClusterWorld, Draw as Draw
    from model.state.export import (
        ExportedPolicy as ExportedPolicy,
        exported as exported,
        is_policy_file as is_policy_file,
        manifest_of as manifest_of,
        open_exported as open_exported,
    )
    from model.state.jobs import (
        Message as Message,
        answered as answered,
        judgement_of as judgement_of,
        judging_message as judging_message,
        outcome_of as outcome_of,
        training_message as training_message,
    )
    from model.state.latent_map import LatentMap as LatentMap, latent_map as latent_map
    from model.state.restore import (
        restore as restore,
        restore_networks as restore_networks,
        restore_policy as restore_policy,
    )
    from model.state.snapshot import (
        SnapshotError as SnapshotError,
        state_hash as state_hash,
        to_bytes as to_bytes,
    )
    from model.training.networks import Networks as Networks
    from model.training.optimiser import Moments as Moments, Recordings as Recordings
    from model.training.schedule import (
        Cause as Cause,
        ContextCounts as ContextCounts,
        NextUpdate as NextUpdate,
    )
    from model.transfer.gate import is_finite as is_finite, refused as refused
    from model.transfer.report import Judgement as Judgement, JudgingJob as JudgingJob
    from model.transfer.verdict import Word as Word

_HOMES = {
    "BanditConfig": "model.config",
    "Booleans": "model.rounds",
    "Budget": "model.budget",
    "CarriedOver": "model.config",
    "Cause": "model.training.schedule",
    "ClusterWorld": "model.simulate",
    "ContextCounts": "model.training.schedule",
    "ContextKind": "model.config",
    "Domain": "model.rounds",
    "Doubles": "model.rounds",
    "Draw": "model.simulate",
    "ExportedPolicy": "model.state.export",
    "Floats": "model.rounds",
    "GROWS_WITH": "model.budget",
    "GateRule": "model.config",
    "Integers": "model.rounds",
    "Judgement": "model.transfer.report",
    "JudgingJob": "model.transfer.report",
    "Keys": "model.rounds",
    "LatentMap": "model.state.latent_map",
    "Learner": "model.learner",
    "Message": "model.state.jobs",
    "Moments": "model.training.optimiser",
    "Networks": "model.training.networks",
    "NextUpdate": "model.training.schedule",
    "Outcome": "model.learner",
    "Phase": "model.rounds",
    "Policy": "model.bandit.policy",
    "RECIPE": "model.config",
    "Recipe": "model.config",
    "Recordings": "model.training.optimiser",
    "RoundBlock": "model.rounds",
    "SYSTEMS": "model.config",
    "Scores": "model.rounds",
    "Selection": "model.rounds",
    "SnapshotError": "model.state.snapshot",
    "StoredConfig": "model.config",
    "TargetSelection": "model.rounds",
    "TrainingJob": "model.learner",
    "Word": "model.transfer.verdict",
    "answered": "model.state.jobs",
    "carried_over": "model.config",
    "checked_contexts": "model.rounds",
    "draw_keys": "model.randomness",
    "entropy": "model.bandit.selection",
    "estimated": "model.budget",
    "exported": "model.state.export",
    "is_finite": "model.transfer.gate",
    "is_policy_file": "model.state.export",
    "judgement_of": "model.state.jobs",
    "judging_message": "model.state.jobs",
    "latent_map": "model.state.latent_map",
    "manifest_of": "model.state.export",
    "open_exported": "model.state.export",
    "outcome_of": "model.state.jobs",
    "refused": "model.transfer.gate",
    "restore": "model.state.restore",
    "restore_networks": "model.state.restore",
    "restore_policy": "model.state.restore",
    "state_hash": "model.state.snapshot",
    "to_bytes": "model.state.snapshot",
    "training_message": "model.state.jobs",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
