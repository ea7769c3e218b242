import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from model.rounds import Doubles
from model.transfer import diagnostics


def latents(count: int = 400, size: int = 4, seed: int = 0, center: float = 0.0) -> Tensor:
    noise = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    noise[:, 0] += center
    return functional.normalize(noise, dim=1)


def distance(source: Tensor, target: Tensor) -> float:
    return diagnostics.proxy_a_distance(diagnostics.domain_accuracy(source, target, seed=0))


def test_proxy_distance_of_one_domain_to_itself_is_near_zero():
    assert distance(latents(seed=1), latents(seed=2)) < 0.35


def test_proxy_distance_of_disjoint_domains_is_near_two():
    assert distance(latents(center=8.0), latents(center=-8.0)) > 1.95


def test_proxy_distance_grows_with_the_shift():
    shifts = (0.0, 1.5, 8.0)
    distances = [distance(latents(seed=1), latents(seed=2, center=shift)) for shift in shifts]
    assert distances == sorted(distances)
    assert distances[1] > distances[0] + 0.3


@pytest.mark.parametrize(
    ("accuracy", "expected"), [(1.0, 2.0), (0.75, 1.0), (0.5, 0.0), (0.2, 0.0)]
)
def test_proxy_distance_of_a_known_accuracy(accuracy, expected):
    assert diagnostics.proxy_a_distance(accuracy) == pytest.approx(expected)


def test_adversarial_divergence_of_one_domain_to_itself_is_near_zero():
    assert diagnostics.adversarial_divergence(latents(seed=1), latents(seed=2), seed=0) < 0.25


def test_adversarial_divergence_of_disjoint_domains_is_near_two():
    near, far = latents(center=8.0), latents(center=-8.0)
    assert diagnostics.adversarial_divergence(near, far, seed=0) > 1.8


def test_adversarial_divergence_takes_the_larger_of_both_directions():
    one, other = latents(center=2.0), latents(seed=1)
    forward, backward = (
        diagnostics.adversarial_divergence(*pair, seed=0) for pair in ((one, other), (other, one))
    )
    assert forward == backward


def test_probes_are_functions_of_their_seed_and_leave_the_global_generator_alone():
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    pair = latents(60, seed=1), latents(60, seed=2, center=1.0)
    for probe in (diagnostics.domain_accuracy, diagnostics.adversarial_divergence):
        assert probe(*pair, 5) == probe(*pair, 5)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_fresh_domain_accuracy_is_balanced():
    # Ten times as many source latents must not make "always source" look good.
    accuracy = diagnostics.domain_accuracy(latents(1000, seed=1), latents(100, seed=2), seed=0)
    assert accuracy == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("spectrum", "rank"),
    [
        ([1.0, 1.0, 1.0, 1.0], 4.0),
        ([3.0, 3.0, 0.0, 0.0], 2.0),
        ([5.0, 0.0, 0.0, 0.0], 1.0),
        ([1.0, 0.5, 0.0, 0.0], math.exp(-0.8 * math.log(0.8) - 0.2 * math.log(0.2))),
    ],
)
def test_effective_rank_of_a_known_spectrum(spectrum, rank):
    assert diagnostics.effective_rank(torch.diag(torch.tensor(spectrum))) == pytest.approx(rank)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (7, 7)])
def test_effective_rank_is_that_of_the_singular_values(shape):
    latents = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    shares = torch.linalg.svdvals(latents.double()).square()
    shares = shares / shares.sum()
    expected = float(torch.exp(-(shares * shares.log()).sum()))
    assert diagnostics.effective_rank(latents) == pytest.approx(expected)


def test_effective_rank_of_nothing_is_that_of_a_collapse():
    assert diagnostics.effective_rank(torch.zeros(5, 3)) == 1.0


def test_mean_entropy_of_certain_and_of_even_predictions():
    certain, even = torch.eye(4), torch.full((4, 4), 0.25)
    assert diagnostics.mean_entropy(certain) == 0
    assert diagnostics.mean_entropy(even) == pytest.approx(math.log(4))
    assert diagnostics.mean_entropy(torch.cat([certain, even])) == pytest.approx(math.log(4) / 2)


def test_neighbourhood_density_of_equal_latents_is_log_of_their_neighbours():
    equal = torch.tensor([[1.0, 0.0]]).repeat(9, 1)
    assert diagnostics.soft_neighbourhood_density(equal) == pytest.approx(math.log(8))


def test_neighbourhood_density_of_two_far_clusters_counts_only_their_own():
    two = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(5, 1)
    assert diagnostics.soft_neighbourhood_density(two) == pytest.approx(math.log(4), abs=1e-6)


def test_clustered_latents_are_denser_than_scattered_ones():
    clusters = functional.normalize(
        torch.eye(8)[torch.arange(200) % 8] + 0.1 * latents(200, 8), dim=1
    )
    dense, loose = (diagnostics.soft_neighbourhood_density(z) for z in (clusters, latents(200, 8)))
    assert dense > loose


def test_source_regret_is_what_is_missing_to_the_best_reward():
    assert diagnostics.source_regret_upper(np.array([1.0, 0.0, 1.0, 1.0])) == 0.25
    assert diagnostics.source_regret_upper(np.array([0.5]), best_reward=0.75) == 0.25


def test_regression_error_by_hand():
    assert diagnostics.regression_error(np.array([0.5, 0.0]), np.array([1.0, 1.0])) == 0.75


def report(source: Tensor, target: Tensor, rewards: Doubles) -> diagnostics.TransferReport:
    predicted = source.double().numpy()[np.arange(len(rewards)), np.arange(len(rewards)) % 3]
    on_target = 2 * target.double().numpy()[:, :3]
    return diagnostics.transfer_report(source, target, predicted, rewards, on_target, seed=0)


def test_report_holds_each_term_and_each_validator():
    source, target = latents(300, seed=1), latents(300, seed=2, center=3.0)
    rewards = (np.arange(300) % 2).astype(np.float64)
    made = report(source, target, rewards)
    assert made.source_regret == 0.5
    predicted = source.numpy()[np.arange(300), np.arange(300) % 3]
    assert made.regression_error == pytest.approx(np.abs(rewards - predicted).mean(), rel=1e-5)
    best = 2 * target.numpy()[:, :3].max(axis=1)
    assert made.predicted_reward == pytest.approx(np.abs(best).mean(), rel=1e-5)
    assert made.domain_accuracy == diagnostics.domain_accuracy(source, target, 0)
    assert made.source_rank > made.target_rank


def test_report_is_a_flat_mapping_of_plain_numbers():
    values = asdict(report(latents(40), latents(40, seed=1), np.ones(40)))
    assert values["divergence"] >= 0
    assert all(type(value) is float for value in values.values())


def test_report_of_alike_domains_promises_more_than_that_of_far_ones():
    near = report(latents(seed=1), latents(seed=2), np.ones(400))
    far = report(latents(seed=1), latents(seed=2, center=8.0), np.ones(400))
    assert near.proxy_a_distance < far.proxy_a_distance
    assert near.divergence < far.divergence
