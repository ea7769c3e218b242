"""The declaration of an experiment, and the model's configuration from it."""

from typing import Any

import pytest

from model.config import ContextKind
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec, is_name
from service.limits import BudgetLimits

DOSES = ExperimentSpec("doses", ("low", "mid"), ContextKind.SHARED, (4,), config={"alpha": 0.5})


def changed(**fields: Any) -> ExperimentSpec:
    values = {name: getattr(DOSES, name) for name in DOSES.__dataclass_fields__}
    return ExperimentSpec(**{**values, **fields})


def test_a_declaration_survives_the_database():
    assert ExperimentSpec.from_json("doses", DOSES.to_json()) == DOSES


def test_the_configuration_is_the_methods_with_what_was_declared():
    config = DOSES.bandit_config()
    assert (config.arm_count, config.context_shape, config.alpha) == (2, (4,), 0.5)
    assert config.divergence_weight == 1.0  # daband's own


def test_a_stored_declaration_may_name_a_field_of_an_earlier_build():
    assert changed(config={"alpha": 0.5, "balance_classes": True}).bandit_config() == (
        DOSES.bandit_config()
    )


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
