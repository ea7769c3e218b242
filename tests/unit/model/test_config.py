import dataclasses
import json
import math

import pytest

from model.config import (
    RECIPE,
    BanditConfig,
    CarriedOver,
    ContextKind,
    Recipe,
    Retired,
    StoredConfig,
    carried_over,
    without_retired,
)
from tests.support.builders import small_config

BAD_VALUES = [
    ("arm_count", 0),
    ("arm_count", -1),
    ("arm_count", 1.5),
    ("arm_count", True),
    ("arm_count", "3"),
    ("arm_count", None),
    ("arm_count", 10_001),
    ("context_shape", ()),
    ("context_shape", (0,)),
    ("context_shape", (4, -1)),
    ("context_shape", (1.5,)),
    ("context_shape", (True,)),
    ("context_shape", 4),
    ("context_kind", "both"),
    ("exclusive_rewards", 1),
    ("slot_kinds", "m"),
    ("slot_kinds", "mbxx"),
    ("slot_kinds", "mbmbm"),
    ("slot_kinds", ("m", "b", "m", "b")),
    ("ridge", 0),
    ("ridge", -1.0),
    ("ridge", math.nan),
    ("ridge", math.inf),
    ("alpha", -0.1),
    ("alpha", "0.1"),
    ("epsilon", -0.01),
    ("epsilon", 1.01),
    ("epsilon", math.nan),
    ("encoder", 5),
    ("latent_size", 0),
    ("hidden_sizes", (0,)),
    ("component_count", 0),
    ("episode_length", 0),
    ("steps_per_episode", -1),
    ("batch_size", 1),
    ("learning_rate", 0.0),
    ("objective", "guess"),
    ("regression_weight", -1),
    ("prediction_weight", -1),
    ("divergence_weight", -1),
    ("divergence_ramp", -1),
    ("downweight_unseen", "yes"),
    ("align_binary", 1),
    ("domain_batch_norm", None),
    ("match_arm_prior", 0),
    ("consistency_weight", math.inf),
    ("teacher_decay", 1.1),
    ("average_decay", 1.1),
    ("confidence_floor", -0.1),
    ("statistics", "forget"),
    ("rebuild_window", 0),
    ("reservoir_size", 0),
    ("holdout_share", 0.95),
    ("gate_margin", 2),
    ("gate_rank", 0.5),
]


@pytest.mark.parametrize(("field", "value"), BAD_VALUES)
def test_bad_value_is_a_value_error_naming_the_field(field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        small_config(**{field: value})


@pytest.mark.parametrize("field", ["arm_count", "alpha", "episode_length"])
def test_integer_too_large_for_a_float_is_a_value_error_naming_the_field(field):
    with pytest.raises(ValueError, match=f"^{field}: "):
        small_config(**{field: 10**400})


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", 0), ("epsilon", 1), ("alpha", 0), ("arm_count", 1), ("steps_per_episode", 0)],
)
def test_value_on_the_bound_is_accepted(field, value):
    assert getattr(small_config(**{field: value}), field) == value


def test_unknown_name_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^epsilom: "):
        small_config(epsilom=0.1)


@pytest.mark.parametrize("field", ["arm_count", "context_shape"])
def test_missing_required_name_is_refused_by_name(field):
    values = {"arm_count": 2, "context_shape": (3,)}
    del values[field]
    with pytest.raises(ValueError, match=f"^{field}: missing"):
        BanditConfig.from_mapping(values)


def test_every_field_has_meaning_symbol_and_unit():
    for field in dataclasses.fields(BanditConfig):
        assert field.metadata["meaning"], field.name
        assert {"symbol", "unit"} <= set(field.metadata), field.name


def test_configuration_cannot_be_changed_in_place(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.alpha = 2.0


def test_changed_copy_is_validated_again(config):
    assert config.changed(alpha=2).alpha == 2.0
    with pytest.raises(ValueError, match=r"^alpha: "):
        config.changed(alpha=-2)


def test_json_round_trip_gives_an_equal_configuration(config):
    again = BanditConfig.from_mapping(json.loads(config.to_json()))
    assert again == config
    assert again.digest() == config.digest()


def test_digest_does_not_depend_on_number_or_list_spelling():
    assert small_config(alpha=1, hidden_sizes=[8]).digest() == small_config(alpha=1.0).digest()


def test_digest_depends_on_every_changed_value(config):
    assert config.changed(alpha=0.06).digest() != config.digest()


def test_per_arm_contexts_share_one_model():
    assert small_config(context_kind="per_arm").model_count == 1
    assert small_config(context_kind=ContextKind.SHARED).model_count == 3


# A build in which two fields and a step of the training are gone.
LATER = Recipe(
    3,
    systems={},
    on_vectors={},
    on_images={},
    retired=(
        Retired("balance", 2, lambda values: bool(values["balance"]) and values["alpha"] > 0),
        Retired("sharpness", 3, lambda values: values["sharpness"] != 1.0),
        Retired("agreement weighing", 3, lambda values: values["encoder"] == "committee"),
    ),
)


def stored(recipe: int = 1, **values: object) -> StoredConfig:
    gone = {"balance": False, "sharpness": 1.0} if recipe == 1 else {}
    return StoredConfig(recipe, {**json.loads(small_config().to_json()), **gone, **values})


@pytest.mark.parametrize("recipe", [1, 3, 4])
def test_a_stored_configuration_is_the_same_whatever_recipe_follows(recipe):
    assert carried_over(stored(recipe), LATER) == CarriedOver(small_config())


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        ({"balance": True}, ("balance",)),
        ({"balance": True, "alpha": 0.0}, ()),
        ({"sharpness": 0.5}, ("sharpness",)),
        ({"encoder": "committee"}, ("agreement weighing",)),
        ({"balance": True, "sharpness": 2.0}, ("balance", "sharpness")),
        ({"forgotten": 1}, ("forgotten",)),
    ],
)
def test_what_no_code_does_any_more_is_lost_where_it_mattered(values, lost):
    found = carried_over(stored(**values), LATER)
    kept = {name: value for name, value in values.items() if name in ("alpha", "encoder")}
    assert found == CarriedOver(small_config(**kept), lost)


def test_what_was_gone_before_a_recipe_is_not_lost_with_it():
    assert carried_over(stored(3, encoder="committee"), LATER).lost == ()


def test_a_field_of_a_later_recipe_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^novelty: "):
        carried_over(stored(4, novelty=1), LATER)


def test_a_field_that_came_later_has_its_default():
    values = dict(stored().values)
    del values["gate_rank"]
    assert carried_over(StoredConfig(1, values), LATER).config == small_config()


@pytest.mark.parametrize(
    ("method", "shape", "changes", "lost"),
    [
        ("linucb", (4,), {}, ()),
        ("nlinucb", (4,), {}, ()),
        ("daband", (4,), {}, ()),
        ("daband-plus", (4,), {}, ("weights by agreement",)),
        ("linucb", (3, 8, 8), {}, ()),
        ("nlinucb", (3, 8, 8), {}, ("bfloat16 convolutions",)),
        ("daband-plus", (3, 8, 8), {}, ("bfloat16 convolutions",)),
        ("nlinucb", (4,), {"balance_classes": True}, ()),
        ("nlinucb", (4,), {"balance_classes": False, "divergence_weight": 1.0}, ()),
        (
            "nlinucb",
            (4,),
            {"balance_classes": True, "divergence_weight": 1.0},
            ("balance_classes",),
        ),
    ],
)
def test_what_a_recipe_no_longer_does_is_lost_where_it_mattered(method, shape, changes, lost):
    values = json.loads(RECIPE.config(method, arm_count=2, context_shape=shape).to_json())
    since_6 = ("transfer confidence without order",)
    since_5 = ("transfer confidence by latents", *since_6)
    assert carried_over(StoredConfig(1, {**values, **changes})).lost == (*lost, *since_5)
    assert carried_over(StoredConfig(4, values)).lost == since_5
    assert carried_over(StoredConfig(5, values)).lost == since_6
    assert carried_over(StoredConfig(6, values)).lost == ()


def test_a_snapshot_is_read_without_what_is_retired_and_with_all_else():
    values = {**stored().values, "novelty": 1}
    left = without_retired(values, LATER)
    assert values.keys() - left.keys() == {"balance", "sharpness"}
    assert left["novelty"] == 1
