"""The algorithm: domain-adaptive neural contextual bandits, without clocks, I/O or state beside its objects.

Other packages import its public names from here. Each is loaded on first use, because torch takes
a second to load and not every program needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.bandit.policy import Policy as Policy
    from model.bandit.selection import entropy as entropy
    from model.budget import (
        GROWS_WITH as GROWS_WITH,
        Asked as Asked,
        Budget as Budget,
        DecisionBudget as DecisionBudget,
        estimated as estimated,
        estimated_decisions as estimated_decisions,
    )
    from model.config import (
        MAX_ARMS as MAX_ARMS,
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
        UNKNOWN_PROPENSITY as UNKNOWN_PROPENSITY,
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
    from model.state.manifest import is_policy_file as is_policy_file, manifest_of as manifest_of
    from model.state.restore import (
        restore as restore,
        restore_networks as restore_networks,
        restore_policy as restore_policy,
    )
    from model.state.snapshot import (
        state_hash as state_hash,
        to_bytes as to_bytes,
    )
    from model.state.tensor_bytes import SnapshotError as SnapshotError
    from model.training.networks import Networks as Networks
    from model.training.optimiser import Moments as Moments, Recordings as Recordings
    from model.training.schedule import (
        Cause as Cause,
        ContextCounts as ContextCounts,
        NextUpdate as NextUpdate,
    )
    from model.transfer.gate import is_finite as is_finite, refused as refused
    from model.transfer.report import Judgement as Judgement, JudgingJob as JudgingJob
    from model.transfer.verdict import (
        SIGN_LIMITS as SIGN_LIMITS,
        SignLimit as SignLimit,
        Word as Word,
    )

# Each module with its public names.
_PUBLIC = {
    "model.bandit.policy": "Policy",
    "model.bandit.selection": "entropy",
    "model.budget": "Asked Budget DecisionBudget GROWS_WITH estimated estimated_decisions",
    "model.config": "BanditConfig CarriedOver ContextKind GateRule MAX_ARMS RECIPE Recipe SYSTEMS StoredConfig carried_over",
    "model.learner": "Learner Outcome TrainingJob",
    "model.randomness": "draw_keys",
    "model.rounds": "Booleans Domain Doubles Floats Integers Keys Phase RoundBlock Scores Selection TargetSelection UNKNOWN_PROPENSITY checked_contexts",
    "model.simulate": "ClusterWorld Draw",
    "model.state.export": "ExportedPolicy exported open_exported",
    "model.state.manifest": "is_policy_file manifest_of",
    "model.state.jobs": "Message answered judgement_of judging_message outcome_of training_message",
    "model.state.latent_map": "LatentMap latent_map",
    "model.state.restore": "restore restore_networks restore_policy",
    "model.state.snapshot": "state_hash to_bytes",
    "model.state.tensor_bytes": "SnapshotError",
    "model.training.networks": "Networks",
    "model.training.optimiser": "Moments Recordings",
    "model.training.schedule": "Cause ContextCounts NextUpdate",
    "model.transfer.gate": "is_finite refused",
    "model.transfer.report": "Judgement JudgingJob",
    "model.transfer.verdict": "SIGN_LIMITS SignLimit Word",
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
