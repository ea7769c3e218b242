"""A gradient step as a GPU records it: tensor operations alone, none of which the host has a say in."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import BanditConfig, system_config
from model.rounds import Domain
from model.training import losses
from model.training.episode import loss_terms
from model.training.networks import Networks

COUNT = 8
# What makes a tensor from the host's numbers, or the host's numbers from a tensor.
BY_THE_HOST = {
    "arange",
    "lift_fresh",
    "_local_scalar_dense",
    "nonzero",
    "randperm",
    "rand",
    "randn",
}
TEACHER = {"consistency_weight": 2.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "mlp": {**TEACHER, "context_shape": (5,), "encoder": "mlp", "tower_count": 1},
    "committee": {
        **TEACHER,
        "context_shape": (5,),
        "encoder": "committee",
        "tower_count": 4,
        "latent_size": 16,
    },
    "conv": {**TEACHER, "context_shape": (3, 8, 8)},
}


class Recorded(TorchDispatchMode):
    """The names of all operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, values: Any = (), options: Any = None
    ) -> Any:
        self.names.add(operation.overloadpacket.__name__)
        return operation(*values, **(options or {}))


def inputs_for(config: BanditConfig) -> dict[str, Tensor]:
    def contexts() -> Tensor:
        return torch.randn(COUNT, *config.context_shape)

    return {
        "source.contexts": contexts(),
        "source.arms": torch.arange(COUNT) % config.model_count,
        "source.rewards": torch.ones(COUNT),
        "unlabeled": contexts(),
        "teacher": contexts(),
        "alignment": torch.ones(config.tower_count),
        "strength": torch.ones(config.tower_count),
        "consistency": torch.tensor(1.0),
        "arm_prior_factor": torch.ones(config.model_count),
    }


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS)
def test_a_step_can_be_recorded(values: dict[str, Any]):
    config = system_config("daband", arm_count=3, exclusive_rewards=True, **values)
    networks = Networks.initial(config, 0, torch.device("cpu")).train()
    inputs = inputs_for(config)
    with Recorded() as recorded:
        torch.stack(list(loss_terms(networks, inputs, config).values())).sum().backward()
    assert "softplus" in recorded.names  # it was watched
    assert recorded.names.isdisjoint(BY_THE_HOST)


@pytest.mark.parametrize(("kind", "share"), [("mlp", 1.0), ("committee", 0.5), ("conv", 1.0)])
def test_divergence_is_a_mean_over_all_members_of_which_the_aligned_ones_count(
    kind: str, share: float
):
    config = system_config("daband", arm_count=3, exclusive_rewards=True, **CONFIGS[kind])
    networks = Networks.initial(config, 0, torch.device("cpu")).train()
    for parameter in networks.discriminator.parameters():
        torch.nn.init.zeros_(parameter)  # it cannot tell the domains apart
    terms = loss_terms(networks, inputs_for(config), config)
    assert terms["divergence"].item() == pytest.approx(share * math.log(2))


@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS)
def test_the_terms_are_those_of_each_domain_by_itself(values: dict[str, Any]):
    config = system_config("daband", arm_count=3, exclusive_rewards=True, **values)
    config = config.changed(confidence_floor=0.0)
    networks = Networks.initial(config, 0, torch.device("cpu")).train()
    inputs = inputs_for(config)
    inputs["unlabeled"] = 2 + inputs["unlabeled"][1:]  # another number of them, and others
    inputs["teacher"] = inputs["teacher"][1:]
    terms = loss_terms(networks, inputs, config)

    z_source = networks.encoder(inputs["source.contexts"], Domain.SOURCE)
    z_target = networks.encoder(inputs["unlabeled"], Domain.TARGET)
    arms = inputs["source.arms"][:, None, None].expand(COUNT, config.tower_count, 1)
    chosen = networks.head.predicted(z_source).gather(2, arms)[:, :, 0]
    rewards = inputs["source.rewards"][:, None].expand_as(chosen)
    best = networks.head.predicted(z_target).amax(2)
    paid = losses.predicted_reward(best, chosen, rewards).mean()
    torch.testing.assert_close(terms["prediction"], config.prediction_weight * paid)

    source, target = (networks.discriminator.logits(z) for z in (z_source, z_target))
    share = source.shape[1] / config.tower_count
    divergence = share * losses.divergence(source, target)
    torch.testing.assert_close(terms["divergence"], divergence)

    assert networks.teacher is not None
    steady = networks.teacher.logits(inputs["teacher"], Domain.TARGET)
    taught = steady.softmax(dim=2).mean(dim=1)
    aligned = networks.head.logits(z_target)[:, -source.shape[1] :]
    consistency = share * losses.consistency(aligned, taught, 0.0)
    torch.testing.assert_close(terms["consistency"], consistency)


def test_with_contexts_by_arm_each_aligned_member_follows_its_own_copy():
    values = {**CONFIGS["committee"], "context_kind": "per_arm"}
    config = system_config("daband", arm_count=3, **values)
    networks = Networks.initial(config, 0, torch.device("cpu")).train()
    inputs = inputs_for(config)
    found = loss_terms(networks, inputs, config)["consistency"]
    assert networks.teacher is not None
    student = networks.head.logits(networks.encoder(inputs["unlabeled"], Domain.TARGET))
    steady = networks.teacher.logits(inputs["teacher"], Domain.TARGET)
    error = (student.sigmoid() - steady.sigmoid()).square()[:, 2:]  # of the aligned half
    torch.testing.assert_close(found, error.mean() / 2)


@pytest.mark.parametrize("context_kind", ["shared", "per_arm"])
def test_the_teacher_has_no_say_in_members_that_are_not_aligned(context_kind: str):
    values = {**CONFIGS["committee"], "context_kind": context_kind, "confidence_floor": 0.0}
    config = system_config("daband", arm_count=3, **values)
    networks = Networks.initial(config, 0, torch.device("cpu")).train()
    loss_terms(networks, inputs_for(config), config)["consistency"].backward()
    last = list(networks.encoder.parameters())[-1].grad
    assert last is not None
    assert last.flatten(1).norm(dim=1).gt(0).tolist() == [False, False, True, True]
