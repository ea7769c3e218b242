"""The configuration of a bandit: every field validated, with symbol, meaning and unit."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, get_type_hints


class ContextKind(StrEnum):
    """`shared`: one context, K arms, K separate (A, b, θ). `per_arm`: a context an arm, one (A, b, θ)."""

    SHARED = "shared"
    PER_ARM = "per_arm"


class Objective(StrEnum):
    """`head`: the reward likelihood of a head that learns with φ. `paper`: squared loss against the frozen θ."""

    HEAD = "head"
    PAPER = "paper"


class StatisticsRule(StrEnum):
    """After a new encoder: `rebuild` A and b under it, or `keep` them as the paper does."""

    REBUILD = "rebuild"
    KEEP = "keep"


class HoldoutRule(StrEnum):
    """What judges encoders and is kept from training them.

    `rounds`: single rounds, which θ is fitted on (recipes 1 to 3). `contexts`: all rounds of a context,
    judged by a θ that is fitted without them.
    """

    ROUNDS = "rounds"
    CONTEXTS = "contexts"


class GateRule(StrEnum):
    """An encoder that passes the gate serves at once (`auto`) or when a person promotes it (`manual`)."""

    AUTO = "auto"
    MANUAL = "manual"


def _field(
    default: Any,
    meaning: str,
    *,
    symbol: str = "",
    unit: str = "",
    bounds: tuple[float, float] = (-math.inf, math.inf),
    max_items: int | None = None,
) -> Any:
    """A validated field: `bounds` are inclusive, and hold for each item of a list."""
    metadata = {
        "meaning": meaning,
        "symbol": symbol,
        "unit": unit,
        "bounds": bounds,
        "max_items": max_items,
    }
    return dataclasses.field(default=default, metadata=metadata)


REQUIRED = dataclasses.MISSING
_LARGE = 10**300  # larger integers do not fit a finite float
ENSEMBLE = "committee"  # the stored name of the ensemble encoder
MAX_ARMS = 10_000
MANY = (1 << 31) - 1  # the largest of numbers that have no narrower bound
STRONG = 1e6  # beyond it a weight or factor overflows, or training diverges


@dataclass(frozen=True, slots=True, kw_only=True)
class BanditConfig:
    """The configuration of one bandit. A bad value raises a ValueError that names the field."""

    arm_count: int = _field(REQUIRED, "number of arms", symbol="K", bounds=(1, MAX_ARMS))
    context_shape: tuple[int, ...] = _field(
        REQUIRED, "shape of one context: (d,) or (C, H, W)", bounds=(1, MANY)
    )
    context_kind: ContextKind = _field(
        ContextKind.SHARED, "one shared context, or one for each arm"
    )
    slot_kinds: str = _field(
        "",
        "kind of each number of a vector, m = measured, b = binary; empty = guessed from the values",
    )
    exclusive_rewards: bool = _field(False, "exactly one arm pays 1 in a round, all others 0")

    ridge: float = _field(1.0, "A starts as ridge · I", symbol="γ", bounds=(1e-6, STRONG))
    alpha: float = _field(0.05, "factor on the confidence width", symbol="α", bounds=(0, STRONG))
    epsilon: float = _field(0.05, "share of uniform exploration", symbol="ε", bounds=(0, 1))

    encoder: str = _field("auto", "kind of φ; auto = conv for images, mlp for vectors", symbol="φ")
    latent_size: int = _field(
        64, "dimension of φ(x) where it is learned", symbol="d", bounds=(1, 4096)
    )
    hidden_sizes: tuple[int, ...] = _field(
        (128, 128), "widths of the mlp's hidden layers", bounds=(1, 8192), max_items=16
    )
    tower_count: int = _field(
        1,
        "maximum of members of an ensemble (encoder committee), equal parts of φ(x)",
        symbol="T",
        bounds=(1, 64),
    )
    downweight_unseen: bool = _field(
        True, "down-weight a vector's features that rewarded rounds have not seen vary"
    )
    align_binary: bool = _field(
        False, "in an ensemble, align features with two values like measured ones"
    )
    domain_batch_norm: bool = _field(
        True, "each domain's images are normalised by batch statistics of their own"
    )
    component_count: int = _field(64, "PCA components", bounds=(1, 4096))

    episode_length: int = _field(
        64,
        "source rewards between two encoder updates",
        symbol="H",
        unit="rewards",
        bounds=(1, MANY),
    )
    steps_per_episode: int = _field(
        64, "gradient steps of one encoder update", unit="steps", bounds=(0, 100_000)
    )
    batch_size: int = _field(
        64, "rounds and target contexts in one step", unit="contexts", bounds=(2, 65_536)
    )
    learning_rate: float = _field(1e-3, "Adam's step size", bounds=(1e-9, 1))

    objective: Objective = _field(Objective.HEAD, "what the encoder learns rewards through")
    regression_weight: float = _field(0.0, "weight of R, the regression error", bounds=(0, STRONG))
    prediction_weight: float = _field(0.0, "weight of P, the predicted reward", bounds=(0, STRONG))
    divergence_weight: float = _field(
        0.0, "weight of D, the divergence of the domains", symbol="λ", bounds=(0, STRONG)
    )
    divergence_ramp: int = _field(
        40, "episodes over which λ rises from 0; 0 = at once", unit="episodes", bounds=(0, MANY)
    )
    consistency_weight: float = _field(
        0.0,
        "weight of the mean teacher's consistency on augmented target contexts",
        bounds=(0, STRONG),
    )
    view_rounds: bool = _field(False, "learn from random augmentation of contexts (views)")
    view_dropout: float = _field(
        0.1, "share of a vector's measured features that augmentation leaves out", bounds=(0, 0.9)
    )
    match_arm_prior: bool = _field(
        True, "scale the teacher's arm probabilities to the arm prior of the source"
    )
    teacher_decay: float = _field(0.99, "decay of the mean teacher a step", bounds=(0, 1))
    average_decay: float = _field(
        0.0, "decay a step of the average that is served; 0 = none", bounds=(0, 1)
    )
    confidence_floor: float = _field(
        0.9, "teacher's least confidence for a target context to count", bounds=(0, 1)
    )

    distil_head: bool = _field(
        False, "decide on the target by what the head learned, where rewards are exclusive"
    )

    statistics: StatisticsRule = _field(
        StatisticsRule.REBUILD, "what happens to A and b under a new φ"
    )
    rebuild_window: int = _field(
        20_000, "newest rounds kept for training and rebuilding", unit="rounds", bounds=(1, MANY)
    )
    reservoir_size: int = _field(
        4096, "unlabeled contexts kept of each domain", unit="contexts", bounds=(1, MANY)
    )
    holdout_share: float = _field(
        0.125, "share of rounds that only judge encoders", bounds=(0, 0.9)
    )

    holdout: HoldoutRule = _field(
        HoldoutRule.ROUNDS,
        "what is held out: single rounds, which θ still sees, or contexts, judged by a θ without them",
    )

    gate: GateRule = _field(
        GateRule.AUTO, "whether a passed φ serves at once or waits for a person"
    )
    gate_margin: float = _field(
        0.05, "held-out reward a new φ may lose, beside sampling error", bounds=(0, 1)
    )
    gate_rank: float = _field(1.1, "least effective rank of the latents", bounds=(1, MANY))

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _converted(name, getattr(self, name), kind))
        for field in dataclasses.fields(self):
            _check_bounds(field.name, getattr(self, field.name), field.metadata)
        if not self.context_shape:
            raise ValueError("context_shape: needs at least one dimension")
        if self.slot_kinds and not self._is_kind_of_each_slot():
            raise ValueError("slot_kinds: needs one letter, m or b, for each number of a context")

    def _is_kind_of_each_slot(self) -> bool:
        return len(self.slot_kinds) == math.prod(self.context_shape) and set(self.slot_kinds) <= {
            *"mb"
        }

    @property
    def is_joint(self) -> bool:
        """Whether all arms share one (A, b, θ)."""
        return self.context_kind is ContextKind.PER_ARM

    @property
    def model_count(self) -> int:
        """How many (A, b, θ) there are: K disjoint ones, or one joint."""
        return 1 if self.is_joint else self.arm_count

    @property
    def is_aligned(self) -> bool:
        """Whether a loss on target contexts, D or C, aligns the domains."""
        return self.divergence_weight > 0 or self.consistency_weight > 0

    def changed(self, **changes: Any) -> Self:
        """The same configuration with some fields replaced (and checked again)."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Canonical JSON: equal configurations give equal text."""
        return _canonical(dataclasses.asdict(self))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A configuration from plain values; an unknown name is an error."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"{unknown[0]}: no such configuration field")
        missing = sorted({"arm_count", "context_shape"} - set(values))
        if missing:
            raise ValueError(f"{missing[0]}: missing")
        return cls(**values)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        return digest_of(dataclasses.asdict(self))


def digest_of(values: Mapping[str, Any]) -> str:
    """The digest of a stored configuration, also of one from a build with fewer fields."""
    return hashlib.sha256(_canonical(values).encode()).hexdigest()


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _converted(name: str, value: Any, kind: Any) -> Any:
    """The value in its declared type: an int becomes a float, a list a tuple; a bool is not a number."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{name}: must be one of {', '.join(kind)}") from None
    if kind == tuple[int, ...]:
        if not isinstance(value, list | tuple) or not all(_is_integer(item) for item in value):
            raise ValueError(f"{name}: must be a list of integers")
        return tuple(value)
    if kind is float and _is_integer(value):
        return float(value) if abs(value) < _LARGE else math.inf
    if type(value) is not kind:
        raise ValueError(f"{name}: must be of type {kind.__name__}")
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_bounds(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    if isinstance(value, tuple):
        most = metadata["max_items"]
        if most is not None and len(value) > most:
            raise ValueError(f"{name}: must be a list of at most {most} numbers")
        for item in value:
            _check_bounds(name, item, metadata)
    if not isinstance(value, int | float):
        return
    if isinstance(value, int) and abs(value) >= _LARGE:
        value = math.inf
    low, high = metadata["bounds"]
    if not low <= value <= high:
        raise ValueError(f"{name}: must be between {low:.10g} and {high:.10g}")


Values = Mapping[str, Any]

# What judges an encoder has not shaped it: no subject is both trained on and held out.
_HELD_OUT: Values = {"holdout": HoldoutRule.CONTEXTS.value}
_DABAND: Values = {
    **_HELD_OUT,
    "regression_weight": 0.1,
    "prediction_weight": 0.01,
    "divergence_weight": 1.0,
    "divergence_ramp": 10,
}

SYSTEMS: Mapping[str, Values] = {
    "linucb": {**_HELD_OUT, "encoder": "identity", "steps_per_episode": 0},
    "linucb-p": {**_HELD_OUT, "encoder": "pca", "steps_per_episode": 0},
    "nlinucb": _HELD_OUT,
    "nlinucb-p": {**_HELD_OUT, "encoder": "pca-mlp"},
    # The paper as printed, with its settings on DIGIT.
    "daband-paper": {
        "objective": Objective.PAPER.value,
        "regression_weight": 2.0,
        "prediction_weight": 1.0,
        "divergence_weight": 10.0,
        "divergence_ramp": 0,
        "learning_rate": 1e-5,
        "statistics": StatisticsRule.KEEP.value,
        "rebuild_window": 64,
        "reservoir_size": 64,
        "downweight_unseen": False,
        "domain_batch_norm": False,
        "holdout_share": 0.0,
        "gate_margin": 1.0,
        "gate_rank": 1.0,
    },
    "daband": _DABAND,
    # R, P and D gained nothing beside the ensemble and the mean teacher (decision 0069).
    "daband-plus": _HELD_OUT,
}

# Vectors: for every learned encoder, a larger α earns more on the source.
_WIDE: Values = {"alpha": 0.5}
# Augmentation prevents memorising the few subjects, and an average over the last updates errs less.
_AUGMENTED: Values = {
    **_WIDE,
    "average_decay": 0.999,
    "view_rounds": True,
    "view_dropout": 0.5,
    "distil_head": True,
}
# Members with different scales err less together than any one alone (model/encoders/ensemble.py).
_ENSEMBLE: Values = {
    **_AUGMENTED,
    "encoder": ENSEMBLE,
    "tower_count": 8,
    "latent_size": 128,
    "hidden_sizes": (64, 64),
}
# Where nothing is learned, a column of large numbers drowns the others unless all are on one scale.
_ON_VECTORS: Mapping[str, Values] = {
    "linucb": {"encoder": "scaled"},
    "linucb-p": {"encoder": "scaled-pca"},
    "nlinucb": _WIDE,
    "nlinucb-p": _WIDE,
    "daband": _AUGMENTED,
    "daband-plus": _ENSEMBLE,
}

# Images: only a large α finds arms that were never pulled. More contexts are worth keeping, and the
# discriminator needs a slow start.
_IMAGES: Values = {"alpha": 0.5, "batch_size": 128, "reservoir_size": 20_000}
_ON_IMAGES: Mapping[str, Values] = {
    **{name: _IMAGES for name in SYSTEMS if name != "daband-paper"},
    # On raw pixels nothing is trained, and a second A would be as large as the first.
    "linucb": {**_IMAGES, "holdout": HoldoutRule.ROUNDS.value},
    "daband": {**_IMAGES, "divergence_ramp": 300, "view_rounds": True},
    "daband-plus": {
        **_IMAGES,
        # With a teacher, strides instead of pooling and its head reduce the variance over seeds (decision 0062).
        "encoder": "strided-conv",
        "batch_size": 112,
        "distil_head": True,
        "consistency_weight": 3.0,
        "divergence_ramp": 100,
        "view_rounds": True,
        "learning_rate": 2e-3,
        "average_decay": 0.9995,
    },
}


@dataclass(frozen=True, slots=True)
class Retired:
    """A feature of earlier recipes that was removed.

    `name` is the name of a removed field, or describes the feature. `mattered` says, from the stored
    values, whether an experiment used it.
    """

    name: str
    since: int  # the first recipe without it
    mattered: Callable[[Values], bool]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The configuration values of each method: for all contexts, for vectors and for images."""

    version: int
    systems: Mapping[str, Values]
    on_vectors: Mapping[str, Values]
    on_images: Mapping[str, Values]
    retired: Sequence[Retired] = ()

    def config(self, name: str, **values: Any) -> BanditConfig:
        """The configuration of a named system for one experiment; `values` win over the system's."""
        if name not in self.systems:
            raise ValueError(f"method: must be one of {', '.join(self.systems)}")
        shape = values.get("context_shape", ())
        is_image = isinstance(shape, list | tuple) and len(shape) == 3
        own = (self.on_images if is_image else self.on_vectors).get(name, {})
        return BanditConfig.from_mapping({**self.systems[name], **own, **values})


_CONVOLUTIONS = frozenset({"auto", "conv", "strided-conv"})


def _balanced_classes(values: Values) -> bool:
    return bool(values.get("balance_classes")) and values["divergence_weight"] > 0


def _weighted_members(values: Values) -> bool:
    return bool(values["encoder"] == ENSEMBLE)


def _convolved(values: Values) -> bool:
    return len(values["context_shape"]) == 3 and values["encoder"] in _CONVOLUTIONS


# Raise the version whenever a method changes, in the tables above or in training. Add removed features to
# `retired`: experiments keep the recipe that they started with.
RECIPE = Recipe(
    6,
    SYSTEMS,
    _ON_VECTORS,
    _ON_IMAGES,
    retired=(
        Retired("balance_classes", 2, _balanced_classes),
        Retired("weights by agreement", 2, _weighted_members),
        Retired("bfloat16 convolutions", 2, _convolved),
        Retired("transfer confidence by latents", 5, lambda values: True),
        Retired("transfer confidence without order", 6, lambda values: True),
    ),
)


def system_config(name: str, **values: Any) -> BanditConfig:
    """The configuration of a named system by today's recipe."""
    return RECIPE.config(name, **values)


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The values that a recipe, maybe an earlier one, resolved a configuration to."""

    recipe: int
    values: Values


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """A stored configuration as this build runs it; `lost` names the removed features that it used."""

    config: BanditConfig
    lost: tuple[str, ...] = ()


def carried_over(stored: StoredConfig, recipe: Recipe = RECIPE) -> CarriedOver:
    """Read a stored configuration without the removed fields.

    A removed feature is lost if it mattered, or if no rule says whether it did. An unknown field of a
    later recipe raises ValueError.
    """
    rules = [each for each in recipe.retired if each.since > stored.recipe]
    lost = [each.name for each in rules if each.mattered(stored.values)]
    values = without_retired(stored.values, recipe)
    if stored.recipe <= recipe.version:
        unknown = sorted(values.keys() - {field.name for field in dataclasses.fields(BanditConfig)})
        lost += unknown
        values = {name: values[name] for name in values if name not in unknown}
    return CarriedOver(BanditConfig.from_mapping(values), tuple(lost))


def without_retired(values: Values, recipe: Recipe = RECIPE) -> dict[str, Any]:
    """The values without retired fields, which serving does not need."""
    retired = {each.name for each in recipe.retired}
    return {name: value for name, value in values.items() if name not in retired}
