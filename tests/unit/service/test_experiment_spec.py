"""The declaration of an experiment, and the model's configuration from it."""

from typing import Any

import pytest

from model.config import RECIPE, SYSTEMS, ContextKind, Recipe, StoredConfig
from service import DEFAULT_METHOD
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec, is_name
from service.limits import BudgetLimits
from service.records import Experiment, Phase, Status, utc_now

DOSES = ExperimentSpec("doses", ("low", "mid"), ContextKind.SHARED, (4,), config={"alpha": 0.5})

COUNTS: dict[str, Any] = {"head_offset": 0, "next_version": 1, "epoch": 0, "created_at": utc_now()}


def changed(**fields: Any) -> ExperimentSpec:
    values = {name: getattr(DOSES, name) for name in DOSES.__dataclass_fields__}
    return ExperimentSpec(**{**values, **fields})


def test_a_declaration_survives_the_database():
    assert ExperimentSpec.from_json("doses", DOSES.to_json()) == DOSES


def test_the_configuration_is_the_methods_with_what_was_declared():
    config = DOSES.bandit_config()
    assert (config.arm_count, config.context_shape, config.alpha) == (2, (4,), 0.5)
    assert config.view_dropout == 0.5  # the method's own


# A build that took the method for something else.
OTHER = Recipe(
    RECIPE.version + 1,
    SYSTEMS,
    on_vectors={DEFAULT_METHOD: {"alpha": 0.3, "gate_rank": 2.0}},
    on_images={},
)


def kept(spec: ExperimentSpec) -> ExperimentSpec:
    """As it comes back from the database."""
    row = Experiment(
        "e-1", "doses", phase=Phase.ZERO_SHOT, status=Status.ACTIVE, **COUNTS, **spec.row()
    )
    return ExperimentSpec.of(row)


@pytest.mark.parametrize("recipe", [RECIPE, OTHER])
def test_the_configuration_in_force_outlives_its_recipe(recipe: Recipe):
    spec = kept(DOSES.resolved(recipe))
    config = DOSES.bandit_config(recipe)
    assert (spec.bandit_config(), spec.recipe, spec.lost) == (config, recipe.version, ())
    for later in (RECIPE, OTHER):
        assert spec.bandit_config(later) == config
        assert spec.resolved(later) == spec
    assert spec.to_json() == DOSES.to_json()


def test_other_values_are_put_to_what_is_in_force_and_another_method_is_todays():
    spec = kept(DOSES.resolved(OTHER))
    changed = spec.changed(DEFAULT_METHOD, {"epsilon": 0.5})
    changed.check()
    config = changed.bandit_config()
    assert (config.alpha, config.gate_rank, config.epsilon) == (0.5, 2.0, 0.5)
    other = spec.changed("nlinucb", {"epsilon": 0.5}).bandit_config()
    assert other == RECIPE.config(
        "nlinucb", arm_count=2, context_shape=(4,), alpha=0.5, epsilon=0.5
    )
    with pytest.raises(InvalidRequest):
        spec.changed(DEFAULT_METHOD, {"nonsense": 1}).check()


def test_a_declared_field_that_is_gone_does_not_keep_others_from_being_evaluated():
    spec = changed(config={"alpha": 0.5, "old_trick": True}, stored=DOSES.resolved().stored)
    assert spec.bandit_config() == DOSES.bandit_config()
    for method in ("daband", "nlinucb"):
        spec.changed(method, {}).check()


def test_what_is_gone_is_lost_and_what_is_not_yet_there_refused():
    stored = DOSES.resolved().stored
    assert stored is not None
    values = {**stored.values, "trick": True}
    assert changed(stored=StoredConfig(RECIPE.version, values)).lost == ("trick",)
    later = changed(stored=StoredConfig(RECIPE.version + 1, values))
    for read in (later.bandit_config, lambda: later.lost):
        with pytest.raises(InvalidRequest):
            read()


def test_arms_have_indexes():
    assert (DOSES.arm_index("low"), DOSES.arm_index("mid")) == (0, 1)
    open_arms = changed(arms=(), context_kind=ContextKind.PER_ARM)
    assert open_arms.arm_index("anything") == 0
    open_arms.check()


def test_a_good_declaration_can_be_served():
    DOSES.check()
    DOSES.prove()
    changed(context_kind=ContextKind.PER_ARM).prove()


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"method": "magic"}, "#/method"),
        ({"config": {"alpha": -1}}, "#/config/alpha"),
        ({"config": {"alpha": True}}, "#/config/alpha"),
        ({"config": {"alpha": 10**400}}, "#/config/alpha"),
        ({"config": {"hidden_sizes": "wide"}}, "#/config/hidden_sizes"),
        ({"config": {"hidden_sizes": [1] * 17}}, "#/config/hidden_sizes"),
        ({"config": {"hidden_sizes": [8193]}}, "#/config/hidden_sizes"),
        ({"config": {"statistics": "forget"}}, "#/config/statistics"),
        ({"config": {"context_shape": [9]}}, "#/config"),
        ({"config": {"latent_size": 5000}}, "#/config/latent_size"),
        ({"config": {"episode_length": 2**40}}, "#/config/episode_length"),
        ({"config": {"alpha": 1e300}}, "#/config/alpha"),
        ({"config": {"ridge": 1e-300}}, "#/config/ridge"),
        ({"config": {"learning_rate": 1e6}}, "#/config/learning_rate"),
        ({"config": {"divergence_weight": 1e300}}, "#/config/divergence_weight"),
        ({"arms": tuple(map(str, range(10_001)))}, "#/arms"),
        ({"seed": 2**63}, "#/seed"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(fields: dict[str, Any], pointer: str):
    with pytest.raises(InvalidRequest) as refused:
        changed(**fields).check()
    (place,) = refused.value.members["errors"]
    assert place["pointer"] == pointer
    assert place["detail"].endswith(".")


def test_an_unknown_configuration_field_is_named_with_the_allowed_ones():
    with pytest.raises(InvalidRequest) as refused:
        changed(config={"alpah" * 20: 1}).check()
    (place,) = refused.value.members["errors"]
    assert place["detail"].startswith(f"Unknown field `{('alpah' * 20)[:64]}`. Allowed: ")
    assert ", alpha, " in place["detail"].replace("Allowed: ", ", ")


# Accepted once, and the end of the process that trained it: an update would need terabytes.
POISON: dict[str, Any] = {
    "context_shape": (65536,),
    "config": {
        "batch_size": 65536,
        "episode_length": 1,
        "holdout_share": 0.0,
        "hidden_sizes": [2],
    },
}


@pytest.mark.parametrize(
    ("fields", "need", "pointer"),
    [
        (POISON, "One encoder update would need 5,052,", "#/context/shape"),
        ({"context_shape": (1024, 1024), "method": "linucb"}, "A snapshot of A, b", "#/arms"),
        ({"context_shape": (65536,)}, "The learner with its", "#/context/shape"),
        ({"context_shape": (800,), "config": {"batch_size": 65536}}, "One encoder", None),
        ({"config": {"steps_per_episode": 100_000}}, "would need about", None),
        (
            {"context_shape": (600,), "method": "linucb", "config": {"episode_length": 1}},
            "Folding a reward would need about",
            "#/config/episode_length",
        ),
        ({"config": {"rebuild_window": 2**31 - 1}}, "rebuild_window", None),
        ({"config": {"reservoir_size": 2**31 - 1}}, "reservoir_size", None),
    ],
)
def test_what_no_process_could_carry_is_refused_with_its_figure(
    fields: dict[str, Any], need: str, pointer: str | None
):
    changed(**fields).check()
    with pytest.raises(InvalidRequest) as refused:
        changed(**fields).check_budget(BudgetLimits())
    places = refused.value.members["errors"]
    (place,) = [each for each in places if need in each["detail"]][:1]
    assert "the limit is" in place["detail"]
    assert pointer in (None, place["pointer"])


def test_limits_are_the_operators():
    DOSES.check_budget(BudgetLimits())
    with pytest.raises(InvalidRequest):
        DOSES.check_budget(BudgetLimits(update_seconds=0.5))


def test_an_encoder_that_does_not_fit_is_noticed_when_proved():
    with pytest.raises(InvalidRequest):
        changed(config={"encoder": "conv"}).prove()


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [("doses", True), ("A.b-c_1", True), ("", False), (".a", False), ("a b", False), ("é", False)],
)
def test_names_are_fit_for_urls(text: str, is_fine: bool):
    assert is_name(text) is is_fine
