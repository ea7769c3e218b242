"""Estimates of memory and time, held against torch's own counts of the same networks."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model.budget import estimated
from model.config import SYSTEMS, BanditConfig, system_config
from model.encoders.size import decision_multiplications, network_size
from model.learner import Learner
from model.rounds import Domain
from model.state.snapshot import to_bytes
from model.training.episode import loss_terms
from model.training.networks import Networks
from tests.support.builders import make_rounds, teach

VECTORS, IMAGES = (24,), (3, 16, 16)
CASES = [(name, shape) for name in SYSTEMS for shape in (VECTORS, IMAGES)]


def config_of(name: str, shape: tuple[int, ...], **changes: Any) -> BanditConfig:
    return system_config(name, arm_count=5, context_shape=shape, **changes)


def networks_of(config: BanditConfig) -> Networks:
    return Networks.initial(config, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_weights_are_those_of_the_networks(name: str, shape: tuple[int, ...]):
    config = config_of(name, shape)
    networks = networks_of(config)
    count = sum(each.numel() for each in networks.parameters())
    size = network_size(config)
    assert size.latent == networks.encoder.latent_size
    assert count <= 1.02 * size.weights + 2_000  # biases and scales
    if count:
        assert size.weights <= 1.5 * count + 20_000


def step_inputs(config: BanditConfig, members: int) -> dict[str, torch.Tensor]:
    rows = config.batch_size
    contexts = torch.randn(rows, *config.context_shape)
    inputs = {
        "source.contexts": contexts,
        "source.arms": torch.zeros(rows, dtype=torch.int64),
        "source.rewards": torch.ones(rows),
        "alignment": torch.ones(members),
        "strength": torch.ones(members),
        "consistency": torch.tensor(1.0),
        "theta": torch.zeros(config.model_count, config.latent_size),
    }
    if config.consistency_weight:
        return {**inputs, "unlabeled": contexts, "teacher": contexts}
    return {**inputs, "unlabeled": contexts}


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_arithmetic_of_a_step_is_not_underestimated(name: str, shape: tuple[int, ...]):
    config = config_of(name, shape)
    networks = networks_of(config).train()
    if not networks.encoder.is_learned:
        return
    counted = FlopCounterMode(display=False)
    with counted:
        terms = loss_terms(networks, step_inputs(config, networks.encoder.members), config)
        torch.stack(list(terms.values())).sum().backward()
    passes = 3 + (config.consistency_weight > 0)  # as the estimate has it
    multiplications = 3 * passes * config.batch_size * network_size(config).multiplications
    assert 0.25 * multiplications <= counted.get_total_flops() / 2 <= multiplications


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_snapshot_is_not_larger_than_estimated(name: str):
    config = config_of(name, VECTORS, episode_length=16, batch_size=8, steps_per_episode=2)
    learner = Learner(config, seed=0)
    rounds = make_rounds(config, 40)
    teach(learner, rounds)
    size = len(to_bytes(learner, 1, with_contexts=False))
    assert size <= estimated(config, rounds=len(rounds)).snapshot_bytes + 64_000  # names, header


def test_every_estimate_grows_with_what_it_is_said_to_grow_with():
    base = config_of("daband", VECTORS)
    more = base.changed(arm_count=50, context_shape=(240,), batch_size=640, rebuild_window=10**6)
    small, large = estimated(base), estimated(more)
    for name in small.__dataclass_fields__:
        assert getattr(large, name) > getattr(small, name)


def test_a_short_log_needs_less():
    config = config_of("daband", (800,))
    assert estimated(config, rounds=10).learner_bytes < 0.2 * estimated(config).learner_bytes


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_arithmetic_of_a_decision_is_not_underestimated(name: str, shape: tuple[int, ...]):
    config = config_of(name, shape)
    encoder = networks_of(config).encoder.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.zeros(1, *shape), Domain.SOURCE)
    assert counter.get_total_flops() <= 2 * decision_multiplications(config)


def test_folding_a_reward_takes_longer_where_episodes_are_short():
    short, long = (
        estimated(config_of("linucb", (600,), episode_length=length)) for length in (1, 100)
    )
    assert short.reward_seconds == pytest.approx(100 * long.reward_seconds)
    assert short.reward_seconds == pytest.approx(
        2.17, rel=0.01
    )  # two times five A of 601 × 601, twice
