"""The declaration of an experiment, and the model's configuration from it."""

from typing import Any

import pytest

from model.config import ContextKind
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec, is_name

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
        ({"context_shape": (1024, 1024), "method": "linucb"}, "#/config"),
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


def test_an_encoder_that_does_not_fit_is_noticed_when_proved():
    with pytest.raises(InvalidRequest):
        changed(config={"encoder": "conv"}).prove()


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [("doses", True), ("A.b-c_1", True), ("", False), (".a", False), ("a b", False), ("é", False)],
)
def test_names_are_fit_for_urls(text: str, is_fine: bool):
    assert is_name(text) is is_fine
