import numpy as np
import pytest

from model.config import RECIPE, SYSTEMS, ContextKind, digest_of, system_config
from model.encoders.images import Conv, StridedConv
from model.encoders.scaled import Scaled, ScaledProjection
from model.encoders.vectors import MLP, Ensemble, Identity, ProjectedMLP, Projection
from model.learner import Learner
from model.rounds import Domain
from model.simulate import ClusterWorld
from tests.support.builders import SMALL, make_rounds, play, teach
from tests.support.worlds import LinearWorld

# What the methods meant under each recipe, as a digest of all their configurations.
RECIPES = {
    1: "508b3902f7a552c536994b76527ca3413f802d8d1358185cdfe9a6e212c7bd4e",
    2: "9dd1a536788ee8f384dcd4fcdba450797045973236670bc3eee151a98f2b99ff",
    3: "39078f930b80d3d3615f041ce4c727227e9b580ac9310b08ad0db4f39918b881",
    4: "7f81808038b7ecba57121c1776503f906dcc20be4ea19e941ce9f911e2a0d095",
    5: "d4bce5c4effc3317ec3f8470ed34a88a7664a464489ca616371f69decd81ef84",
    6: "b34f0a66effb6627fc8c4aee81d5b4b6d3e497892f79ff8d0c173f465490abb9",
}
OURS = ("daband", "daband-plus")
SIZES = {name: SMALL[name] for name in SMALL if name not in ("arm_count", "context_shape")}


def test_the_papers_systems_and_ours_are_there():
    baselines = {"linucb", "linucb-p", "nlinucb", "nlinucb-p"}
    assert set(SYSTEMS) == baselines | {"daband-paper", "daband", "daband-plus"}


@pytest.mark.parametrize("name", SYSTEMS)
def test_system_runs_two_episodes_on_vectors(name):
    world = ClusterWorld(seed=0, arm_count=3, size=4)
    learner = Learner(system_config(name, **world.config_values(), **SIZES), seed=0)
    play(learner, world, 2)
    assert learner.episode == 2
    assert np.isfinite(learner.policy().score_many(np.ones((2, 4)), Domain.TARGET).ucb).all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_system_runs_two_episodes_on_images(name):
    config = system_config(name, arm_count=3, context_shape=(3, 8, 8), **SIZES)
    learner = Learner(config, seed=0)
    outcomes = teach(learner, make_rounds(config, 32))
    assert [outcome.episode for outcome in outcomes] == [1, 2]
    images = np.ones((2, 3, 8, 8))
    assert np.isfinite(learner.policy().score_many(images, Domain.TARGET).ucb).all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_system_runs_two_episodes_on_per_arm_contexts(name):
    world = LinearWorld(seed=0, arm_count=3, size=4, kind=ContextKind.PER_ARM)
    learner = Learner(system_config(name, **world.config_values(), **SIZES), seed=0)
    play(learner, world, 2)
    assert learner.episode == 2
    assert learner.statistics.A.shape[0] == 1


@pytest.mark.parametrize(
    ("name", "vectors", "images"),
    [
        ("linucb", Scaled, Identity),
        ("linucb-p", ScaledProjection, Projection),
        ("nlinucb", MLP, Conv),
        ("nlinucb-p", ProjectedMLP, ProjectedMLP),
        ("daband-paper", MLP, Conv),
        ("daband", MLP, Conv),
        ("daband-plus", Ensemble, StridedConv),
    ],
)
def test_system_has_the_encoder_of_its_name(name, vectors, images):
    for shape, kind in (((4,), vectors), ((3, 8, 8), images)):
        learner = Learner(system_config(name, arm_count=2, context_shape=shape, **SIZES), seed=0)
        assert type(learner.networks.encoder) is kind


@pytest.mark.parametrize("name", ["daband-paper", "daband"])
@pytest.mark.parametrize("shape", [(4,), (3, 8, 8)])
def test_daband_has_all_terms_of_the_paper(name, shape):
    config = system_config(name, arm_count=2, context_shape=shape)
    assert min(config.regression_weight, config.prediction_weight, config.divergence_weight) > 0


def test_only_the_improved_system_has_a_teacher_and_only_on_images():
    configs = {
        (name, shape): system_config(name, arm_count=2, context_shape=shape)
        for name in SYSTEMS
        for shape in ((4,), (3, 8, 8))
    }
    taught = [key for key, config in configs.items() if config.consistency_weight > 0]
    assert taught == [("daband-plus", (3, 8, 8))]


@pytest.mark.parametrize("shape", [(4,), (3, 8, 8)])
def test_the_improved_system_has_no_adversary(shape):
    config = system_config("daband-plus", arm_count=2, context_shape=shape)
    assert max(config.regression_weight, config.prediction_weight, config.divergence_weight) == 0


@pytest.mark.parametrize("name", ["linucb", "linucb-p", "nlinucb", "nlinucb-p"])
def test_baselines_never_look_at_the_target(name):
    config = system_config(name, arm_count=2, context_shape=(4,))
    assert config.divergence_weight == config.prediction_weight == config.consistency_weight == 0


@pytest.mark.parametrize("shape", [(4,), (3, 8, 8)], ids=str)
def test_all_that_learn_an_encoder_explore_alike(shape):
    names = ("nlinucb", "nlinucb-p", *OURS)
    assert {system_config(n, arm_count=2, context_shape=shape).alpha for n in names} == {0.5}


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_adapts_on_vectors_serves_an_average(name):
    config = system_config(name, arm_count=2, context_shape=(4,), **SIZES)
    networks = Learner(config, seed=0).networks
    assert (networks.average is not None) is (name in OURS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_adapts_on_vectors_learns_from_views(name):
    config = system_config(name, arm_count=2, context_shape=(4,))
    assert config.view_rounds is (name in OURS)
    assert config.view_dropout == (0.5 if name in OURS else 0.1)


@pytest.mark.parametrize("name", SYSTEMS)
def test_adapting_methods_distil_the_head_on_images_only_with_a_teacher(name):
    vectors, images = (
        system_config(name, arm_count=2, context_shape=shape) for shape in ((4,), (3, 8, 8))
    )
    assert vectors.distil_head is (name in OURS)
    assert images.distil_head is (name == "daband-plus")


def test_own_values_win_over_those_of_the_system():
    assert (
        system_config(
            "daband", arm_count=2, context_shape=(4,), divergence_weight=0
        ).divergence_weight
        == 0
    )


def test_the_paper_as_printed_keeps_its_statistics_and_serves_every_encoder():
    config = system_config("daband-paper", arm_count=3, context_shape=(4,), **SIZES)
    learner = Learner(config, seed=0)
    outcomes = teach(learner, make_rounds(config, 32))
    assert set(outcomes[1].losses) == {"reward", "regression", "prediction", "divergence"}
    assert learner.statistics.counts.sum() == 32
    assert learner.encoder_version == 2


def test_unknown_system_is_a_value_error_naming_the_choices():
    with pytest.raises(ValueError, match=r"^method: .*daband-plus"):
        system_config("dabandit", arm_count=2, context_shape=(4,))


def test_a_method_that_means_something_else_has_a_new_recipe():
    """Raise the version of `RECIPE`, say what is retired, and add the digest here."""
    meanings = {
        f"{name} {kind} {shape}": system_config(
            name, arm_count=2, context_shape=shape, context_kind=kind
        ).to_json()
        for name in SYSTEMS
        for kind in ContextKind
        for shape in ((4,), (3, 8, 8))
    }
    assert digest_of(meanings) == RECIPES[RECIPE.version]
