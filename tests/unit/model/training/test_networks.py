from typing import Any

import pytest
import torch

from model.config import system_config
from model.rounds import Domain
from model.training.networks import Head, Networks
from tests.support.builders import small_config

CPU = torch.device("cpu")


def networks(**changes: Any) -> Networks:
    return Networks.initial(small_config(**changes), 3, CPU)


def same(first: Networks, second: Networks) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_initial_networks_are_a_function_of_the_seed():
    assert same(networks(), networks())
    assert not same(networks(), Networks.initial(small_config(), 4, CPU))


def test_initialising_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    networks()
    assert torch.rand(1) == expected


def test_exclusive_head_gives_probabilities_over_the_arms():
    head, latents = Head(4, 3, exclusive=True), torch.randn(5, 4)
    torch.testing.assert_close(head(latents).sum(1), torch.ones(5))


def test_head_of_independent_rewards_gives_each_arm_its_own_probability():
    head, latents = Head(4, 3, exclusive=False), torch.randn(5, 4)
    torch.testing.assert_close(head(latents), head.logits(latents)[:, 0].sigmoid())


def test_members_predict_from_their_own_part_of_the_latents():
    head, latents = Head(6, 2, exclusive=True, members=3), torch.randn(5, 6)
    moved = latents.clone()
    moved[:, 2:4] += 1
    changed = (head.predicted(moved) != head.predicted(latents)).any(dim=(0, 2))
    assert changed.tolist() == [False, True, False]


def test_members_count_by_what_they_weigh_in_the_latents():
    head, latents = Head(6, 2, exclusive=True, members=3), torch.randn(5, 6)
    weighed = latents.unflatten(1, (3, 2)) / latents.unflatten(1, (3, 2)).norm(dim=2, keepdim=True)
    weighed = (weighed * torch.tensor([3.0, 0.0, 1.0])[:, None]).flatten(1)
    first, _, last = head.predicted(latents).unbind(dim=1)
    torch.testing.assert_close(head(weighed), 0.75 * first + 0.25 * last)


def test_joint_head_is_never_a_softmax():
    head = Head(4, 1, exclusive=True)
    assert (head(torch.randn(5, 4)) < 1).all()


def test_teacher_exists_only_where_consistency_has_weight():
    assert networks().teacher is None
    assert networks(consistency_weight=1.0).teacher is not None
    assert networks(consistency_weight=1.0, encoder="identity").teacher is None


def test_the_average_is_served_before_the_teacher():
    assert networks().average is None
    assert networks(average_decay=0.9, encoder="identity").average is None
    both = networks(consistency_weight=1.0, average_decay=0.9)
    assert both.average is not None
    assert (both.served, both.served_head) == (both.average.encoder, both.average.head)
    assert len(set(both.encoders)) == 3


def test_teacher_moves_by_its_decay():
    students = networks(consistency_weight=1.0)
    teacher = students.teacher
    assert teacher is not None
    before = teacher.head.linear.weight.clone()
    with torch.no_grad():
        students.head.linear.weight.add_(1.0)
    teacher.follow(students.encoder, students.head, torch.tensor(0.1))
    torch.testing.assert_close(teacher.head.linear.weight, before + 0.1)


def test_teacher_has_no_gradients():
    teacher = networks(consistency_weight=1.0).teacher
    assert teacher is not None
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


def test_clone_is_independent():
    first = networks()
    second = first.clone()
    with torch.no_grad():
        second.head.linear.weight.add_(1.0)
    assert same(first, networks())


def test_encoding_in_chunks_covers_every_row(monkeypatch):
    contexts = torch.randn(10, 4)
    whole = networks().encode(contexts, Domain.SOURCE)
    for name, value in (("_FEWEST", 1), ("_NUMBERS", 12)):  # three contexts of four numbers
        monkeypatch.setattr(f"model.training.networks.{name}", value)
    torch.testing.assert_close(networks().encode(contexts, Domain.SOURCE), whole)
    assert networks().encode(contexts[:0], Domain.SOURCE).shape == (0, 4)


@pytest.mark.parametrize(
    ("method", "divergence", "members"),
    [
        ("daband", 1.0, 0),
        ("daband-plus", 0.0, 8),
        ("daband-plus", 1.0, 4),
        ("nlinucb", 0.0, 1),
        ("linucb", 0.0, 0),
    ],
)
def test_members_that_were_not_aligned_choose_independently(
    method: str, divergence: float, members: int
):
    config = system_config(
        method,
        arm_count=3,
        context_shape=(5,),
        exclusive_rewards=True,
        divergence_weight=divergence,
    )
    made, contexts = Networks.initial(config, 3, CPU), torch.randn(20, 5)
    latents = made.encode(contexts, Domain.TARGET)
    found = made.independent_choices(latents)
    assert found.shape == (20, members)
    if members:
        first = made.served_head.logits(latents)[:, :members].argmax(dim=2)
        assert found.tolist() == first.tolist()
