"""The declaration of an experiment, validated, and its model configuration."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from model import (
    GROWS_WITH,
    MAX_ARMS,
    RECIPE,
    BanditConfig,
    Budget,
    CarriedOver,
    ContextKind,
    Domain,
    Learner,
    Recipe,
    StoredConfig,
    carried_over,
    estimated,
)
from service import DEFAULT_METHOD
from service.auth.tenants import EXPERIMENT, public_name
from service.columns.rows import RowPlan
from service.columns.schema import TableSchema
from service.errors import MAX_QUOTED_NAME, InvalidRequest, refuse
from service.images.schema import ImageSchema
from service.limits import MEBIBYTE, BudgetLimits
from service.records import UNIT, Experiment, RewardRange, check_identifier

MAX_DIMENSIONS = 4
MAX_CONTEXT_SIZE = 1 << 20
MAX_SEED = (1 << 63) - 1
# JSON pointers of the model's fields in the declaration; all others are in `config`.
POINTERS: Mapping[str, str] = {
    "arm_count": "#/arms",
    "context_shape": "#/context/shape",
    "context_kind": "#/context/kind",
    "method": "#/method",
}
# The subject of each budget estimate, for error messages.
NEEDS: Mapping[str, str] = {
    "snapshot_bytes": "A snapshot of A, b and the encoder",
    "learner_bytes": "The learner with its remembered contexts",
    "update_bytes": "One encoder update",
    "update_seconds": "One encoder update",
    "reward_seconds": "Folding a reward",
}
CONFIG_FIELDS = frozenset(each.name for each in dataclasses.fields(BanditConfig)) - set(POINTERS)


def is_name(text: str) -> bool:
    """Whether this is a valid experiment name, usable in URLs, labels and file names."""
    return EXPERIMENT.fullmatch(text) is not None


class Durability(StrEnum):
    """When a decision is answered: after it is durable, or shortly before."""

    DURABLE = "durable"
    RELAXED = "relaxed"


@dataclass(frozen=True)
class ExperimentSpec:
    """One experiment as declared; `config` holds only the differences from the method's defaults.

    `arms` may be empty for per-arm contexts: each call then names its arms. `stored` is the
    configuration in force, resolved when the experiment was created. `table` are the columns
    if contexts are rows of a table: the model sees their slots. `image` says how files are read
    if contexts are images: the model sees their pixels. `reward_range` is the unit of a history's
    rewards; the model sees 0 to 1.
    """

    name: str
    arms: tuple[str, ...]
    context_kind: ContextKind
    context_shape: tuple[int, ...]
    method: str = DEFAULT_METHOD
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    fallback_arm: str | None = None
    durability: Durability = Durability.DURABLE
    stored: StoredConfig | None = None
    table: TableSchema | None = None
    reward_range: RewardRange | None = None
    image: ImageSchema | None = None

    @cached_property
    def row_plan(self) -> RowPlan | None:
        """What encodes rows, where contexts are rows of a table."""
        return None if self.table is None else RowPlan(self.table)

    def within(self, pixels: int) -> "ExperimentSpec":
        """The same for one request, whose images have so many pixels together."""
        return self if self.image is None else replace(self, image=self.image.within(pixels))

    @cached_property
    def takes_objects(self) -> bool:
        """Whether a context may be an object: a row of a table, or an image."""
        return self.table is not None or self.image is not None

    @cached_property
    def is_relaxed(self) -> bool:
        """Whether decisions may be answered before they are durable."""
        return self.durability is Durability.RELAXED

    @cached_property
    def is_per_arm(self) -> bool:
        """Whether each arm has a context of its own."""
        return self.context_kind is ContextKind.PER_ARM

    @cached_property
    def arm_indexes(self) -> dict[str, int]:
        """The index of each declared arm."""
        return {arm: index for index, arm in enumerate(self.arms)}

    @cached_property
    def arm_name_bytes(self) -> int:
        """The bytes of all declared arms' names."""
        return sum(len(arm.encode()) for arm in self.arms)

    def arm_index(self, arm: str) -> int:
        """The model's index of an arm; joint models ignore it."""
        return self.arm_indexes.get(arm, 0) if self.is_per_arm else self.arm_indexes[arm]

    @property
    def unit(self) -> RewardRange:
        """What the rewards 0 and 1 mean."""
        return self.reward_range or UNIT

    @property
    def recipe(self) -> int:
        """The recipe that the configuration in force was resolved by."""
        return RECIPE.version if self.stored is None else self.stored.recipe

    @property
    def lost(self) -> tuple[str, ...]:
        """The removed features that the configuration in force asks for."""
        return () if self.stored is None else self._carried_over(self.stored).lost

    def bandit_config(self, recipe: Recipe = RECIPE) -> BanditConfig:
        """The configuration in force, or the recipe's for a new declaration.

        `InvalidRequest` names the invalid field.
        """
        if self.stored is not None:
            return self._carried_over(self.stored).config
        self._check_config_names()
        try:
            return recipe.config(
                self.method,
                arm_count=max(1, len(self.arms)),
                context_shape=self.context_shape,
                context_kind=self.context_kind,
                **self._slot_kinds(),
                **self.config,
            )
        except (ValueError, OverflowError) as error:
            _refuse_for_model(error)

    def resolved(self, recipe: Recipe = RECIPE) -> "ExperimentSpec":
        """The same with a stored configuration, resolved by this recipe if there is none yet."""
        if self.stored is not None:
            return self
        values = json.loads(self.bandit_config(recipe).to_json())
        return replace(self, stored=StoredConfig(recipe.version, values))

    def changed(self, method: str, changes: Mapping[str, Any]) -> "ExperimentSpec":
        """The same with another method or other values; the same method keeps its stored configuration."""
        kept = {name: self.config[name] for name in self.config if name in CONFIG_FIELDS}
        stored = self.stored
        if stored is not None:
            values = {**stored.values, **changes}
            stored = replace(stored, values=values) if method == self.method else None
        return replace(self, method=method, config={**kept, **changes}, stored=stored)

    def check(self) -> None:
        """Refuse an invalid declaration."""
        if not is_name(self.name):
            refuse("A name has 1 to 128 letters, digits, dots, dashes and underscores.", "#/name")
        self._check_arms()
        self._check_context()
        if not 0 <= self.seed <= MAX_SEED:
            refuse(f"A seed must be between 0 and {MAX_SEED}.", "#/seed")
        self._check_reward_range()
        self._check_config_names()
        self.bandit_config()

    def check_budget(self, limits: BudgetLimits) -> None:
        """Refuse an experiment over the limits; every exceeded estimate is named."""
        try:
            budget = estimated(self.bandit_config())
        except ValueError as error:
            _refuse_for_model(error)
        exceeded = [name for name in GROWS_WITH if getattr(budget, name) > getattr(limits, name)]
        if exceeded:
            raise InvalidRequest(errors=[_excess(name, budget, limits) for name in exceeded])

    def prove(self) -> None:
        """Build the initial policy and select once, so that serving it cannot fail later."""
        config = self.bandit_config()
        rows = (1, 1) if self.is_per_arm else (1,)
        contexts = np.zeros((*rows, *self.context_shape), dtype=np.float32)
        try:
            policy = Learner(config, self.seed).policy()
            for domain in Domain:
                policy.select_many(contexts, domain, [self.name])
        except (ValueError, RuntimeError) as error:
            _refuse_for_model(error)

    def export_facts(self) -> dict[str, Any]:
        """The facts about the experiment in the manifest of a policy file."""
        unit = {} if self.reward_range is None else {"reward_range": list(self.reward_range)}
        return {
            **unit,
            "experiment": self.name,
            "arms": list(self.arms),
            "fallback_arm": self.fallback_arm,
            "context": self.context_facts(),
        }

    def context_facts(self) -> dict[str, Any]:
        """What the model sees of a context, and the columns or the images that it is encoded from."""
        facts: dict[str, Any] = {
            "kind": self.context_kind.value,
            "shape": list(self.context_shape),
        }
        if self.table is not None:
            facts["columns"] = self.table.plain()
        if self.image is not None:
            facts["image"] = {"resize": self.image.resize}
        return facts

    def row(self) -> dict[str, Any]:
        """The database values of a new experiment: its declaration and resolved configuration."""
        found = self.resolved()
        return {
            "spec": self.to_json(),
            "config": found.bandit_config().to_json(),
            "recipe": found.recipe,
        }

    def to_json(self) -> str:
        """The declaration as stored; the default durability is left out."""
        values: dict[str, Any] = {
            "arms": list(self.arms),
            "context": self.context_facts(),
            "method": self.method,
            "seed": self.seed,
            "config": dict(self.config),
            "fallback_arm": self.fallback_arm,
        }
        if self.is_relaxed:
            values["durability"] = self.durability.value
        if self.reward_range is not None:
            values["reward_range"] = list(self.reward_range)
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, name: str, text: str) -> "ExperimentSpec":
        """The declaration that `to_json` wrote."""
        values = json.loads(text)
        return cls(
            name=name,
            arms=tuple(values["arms"]),
            context_kind=ContextKind(values["context"]["kind"]),
            context_shape=tuple(values["context"]["shape"]),
            method=values["method"],
            seed=values["seed"],
            config=values["config"],
            fallback_arm=values.get("fallback_arm"),
            durability=Durability(values.get("durability", Durability.DURABLE)),
            table=table_of(values["context"]),
            reward_range=range_of(values.get("reward_range")),
            image=image_schema_of(values["context"]),
        )

    @classmethod
    def of(cls, experiment: Experiment) -> "ExperimentSpec":
        """The declaration of a stored experiment, under its tenant's name for it."""
        declared = cls.from_json(public_name(experiment.name), experiment.spec)
        if experiment.config is None or experiment.recipe is None:
            return declared
        stored = StoredConfig(experiment.recipe, json.loads(experiment.config))
        return replace(declared, stored=stored)

    def _slot_kinds(self) -> dict[str, str]:
        """The kinds of a table's slots, unless the caller's configuration states others."""
        if self.table is None or "slot_kinds" in self.config:
            return {}
        return {"slot_kinds": self.table.slot_kinds}

    def _carried_over(self, stored: StoredConfig) -> CarriedOver:
        try:
            return carried_over(stored)
        except ValueError as error:
            _refuse_for_model(error)

    def _check_arms(self) -> None:
        if not self.arms and not self.is_per_arm:
            refuse("An experiment with shared contexts must name its arms.", "#/arms")
        if len(self.arms) > MAX_ARMS:
            refuse(f"An experiment has at most {MAX_ARMS} arms.", "#/arms")
        for index, arm in enumerate(self.arms):
            check_identifier(arm, f"#/arms/{index}")
        if len(self.arm_indexes) != len(self.arms):
            refuse("Arm names must be unique.", "#/arms")
        if self.fallback_arm is not None and self.arms and self.fallback_arm not in self.arms:
            refuse("The fallback arm must be one of the arms.", "#/fallback_arm")

    def _check_context(self) -> None:
        shape = self.context_shape
        if not 1 <= len(shape) <= MAX_DIMENSIONS or any(size < 1 for size in shape):
            refuse(f"A shape has 1 to {MAX_DIMENSIONS} sizes, each at least 1.", "#/context/shape")
        if math.prod(shape) > MAX_CONTEXT_SIZE:
            refuse(f"A context has at most {MAX_CONTEXT_SIZE} numbers.", "#/context/shape")

    def _check_reward_range(self) -> None:
        if self.reward_range is None:
            return
        low, high = self.reward_range
        if not (low < high and math.isfinite(high - low)):
            refuse("A range has two finite numbers, the lower one first.", "#/reward_range")

    def _check_config_names(self) -> None:
        for name in self.config:
            if name not in CONFIG_FIELDS:
                allowed = ", ".join(sorted(CONFIG_FIELDS))
                refuse(f"Unknown field `{name[:MAX_QUOTED_NAME]}`. Allowed: {allowed}.", "#/config")


def table_of(context: Mapping[str, Any]) -> TableSchema | None:
    """The columns that `context_facts` wrote."""
    return TableSchema.from_plain(context["columns"]) if "columns" in context else None


def image_schema_of(context: Mapping[str, Any]) -> ImageSchema | None:
    """The images that `context_facts` wrote of."""
    if "image" not in context:
        return None
    return ImageSchema.of(tuple(context["shape"]), resize=context["image"]["resize"])


def range_of(given: Sequence[float] | None) -> RewardRange | None:
    """The range of two declared numbers, if there is one."""
    return None if given is None else RewardRange(*map(float, given))


def _refuse_for_model(error: Exception) -> NoReturn:
    # The model's messages name a field and its rule, never the value.
    name, _, rule = str(error).partition(": ")
    if name in POINTERS or name in CONFIG_FIELDS:
        refuse(f"{rule[:1].upper()}{rule[1:]}.", _pointer(name))
    refuse("The configuration is inconsistent.", "#/config")


def _excess(name: str, budget: Budget, limits: BudgetLimits) -> dict[str, str]:
    """The error of an exceeded limit: both figures and the fields that drive the estimate."""
    needed, allowed = (_figure(name, getattr(each, name)) for each in (budget, limits))
    fields = GROWS_WITH[name]
    places = ", ".join(_pointer(field).removeprefix("#/").replace("/", ".") for field in fields)
    detail = f"{NEEDS[name]} would need {needed}; the limit is {allowed}. It grows with {places}."
    return {"detail": detail, "pointer": _pointer(fields[0])}


def _figure(name: str, value: float) -> str:
    if name.endswith("_seconds"):
        return f"about {value:,.0f} s"
    return f"{math.ceil(value / MEBIBYTE):,} MiB"


def _pointer(name: str) -> str:
    return POINTERS.get(name, f"#/config/{name}")
