from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from model.bandit.policy import Policy
from model.bandit.selection import drawn_arms
from model.learner import Learner
from model.randomness import KeyedUniforms, draw_keys
from model.rounds import Domain, Doubles, Floats
from tests.support.builders import make_rounds, small_config, teach

IDS = [f"decision-{i}" for i in range(40)]

SETUPS = {
    "identity": {"encoder": "identity"},
    "scaled": {"encoder": "scaled"},
    "pca": {"encoder": "pca"},
    "scaled-pca": {"encoder": "scaled-pca"},
    "mlp": {},
    "pca-mlp": {"encoder": "pca-mlp"},
    "conv": {"context_shape": (3, 8, 8)},
    "strided conv": {"context_shape": (3, 8, 8), "encoder": "strided-conv"},
    "per arm": {"context_kind": "per_arm"},
    "per arm images": {"context_kind": "per_arm", "context_shape": (3, 8, 8)},
}


def unit(contexts: Doubles) -> Doubles:
    return np.asarray(contexts / np.linalg.norm(contexts, axis=1, keepdims=True))


@cache
def trained_policy(**changes: Any) -> Policy:
    learner = Learner(small_config(**{"epsilon": 0.2, **changes}), seed=3)
    teach(learner, make_rounds(learner.config, 36))
    return learner.policy()


def batch(policy: Policy, count: int = 40) -> Floats:
    leading = (count, 3) if policy.config.is_joint else (count,)
    rng = np.random.default_rng(8)
    return rng.standard_normal((*leading, *policy.config.context_shape)).astype(np.float32)


@pytest.mark.parametrize("changes", SETUPS.values(), ids=SETUPS)
@pytest.mark.parametrize("domain", Domain)
def test_selecting_many_equals_selecting_one_by_one(changes, domain):
    policy = trained_policy(**changes)
    contexts = batch(policy)
    together = policy.select_many(contexts, domain, IDS)
    for i, name in enumerate(IDS):
        alone = policy.select_many(contexts[i : i + 1], domain, [name])
        assert alone.arms[0] == together.arms[i]
        np.testing.assert_array_equal(alone.probabilities[0], together.probabilities[i])
        np.testing.assert_allclose(alone.scores.ucb[0], together.scores.ucb[i], atol=1e-6)


def test_scores_are_those_of_the_formula_in_double_precision():
    learner = Learner(small_config(encoder="identity", alpha=0.7), seed=3)
    learner.observe(*make_rounds(learner.config, 15))
    contexts = np.random.default_rng(8).standard_normal((20, 4))
    z = unit(contexts)
    inverse = np.linalg.inv(learner.statistics.A)
    mean = z @ (inverse @ learner.statistics.b[..., None])[..., 0].T
    bonus = 0.7 * np.sqrt(np.einsum("ni,kij,nj->nk", z, inverse, z))
    scores = learner.policy().score_many(contexts, Domain.SOURCE)
    np.testing.assert_allclose(scores.mean, mean, atol=1e-6)
    np.testing.assert_allclose(scores.bonus, bonus, atol=1e-6)
    np.testing.assert_allclose(scores.ucb, mean + bonus, atol=1e-6)


def test_single_precision_chooses_the_arms_of_double_precision():
    learner = Learner(small_config(encoder="identity"), seed=3)
    learner.observe(*make_rounds(learner.config, 15))
    contexts = np.random.default_rng(8).standard_normal((100_000, 4))
    z, factors = unit(contexts), learner.statistics.factors()
    ucb = z @ factors.theta.T
    for arm, root in enumerate(factors.inverse_root):
        ucb[:, arm] += learner.config.alpha * np.linalg.norm(z @ root.T, axis=1)
    served = learner.policy().score_many(contexts, Domain.SOURCE).ucb.argmax(axis=1)
    assert (served != ucb.argmax(axis=1)).mean() < 1e-4


def test_alpha_zero_is_greedy():
    scores = trained_policy(alpha=0.0).score_many(np.ones((2, 4)), Domain.SOURCE)
    assert (scores.bonus == 0).all()
    np.testing.assert_array_equal(scores.ucb, scores.mean)


def test_untried_arm_has_the_widest_bonus():
    learner = Learner(small_config(encoder="identity"), seed=3)
    learner.observe(*[r for r in make_rounds(learner.config, 15) if r.arm != 2])
    scores = learner.policy().score_many(np.ones((1, 4)), Domain.SOURCE)
    assert scores.bonus[0].argmax() == 2
    assert scores.bonus[0, 2] == pytest.approx(learner.config.alpha, rel=1e-5)


def test_probability_of_the_drawn_arm_is_never_zero():
    policy = trained_policy()
    selection = policy.select_many(batch(policy), Domain.TARGET, IDS)
    assert (selection.probabilities[np.arange(40), selection.arms] >= 0.2 / 3).all()


def test_only_eligible_arms_are_selected():
    policy = trained_policy()
    eligible = np.random.default_rng(0).random((40, 3)) < 0.6
    eligible[:, 1] |= ~eligible.any(axis=1)
    selection = policy.select_many(batch(policy), Domain.SOURCE, IDS, eligible)
    assert eligible[np.arange(40), selection.arms].all()
    assert (selection.probabilities[~eligible] == 0).all()


def test_per_arm_rounds_may_have_any_number_of_arms():
    policy = trained_policy(context_kind="per_arm")
    selection = policy.select_many(np.ones((2, 7, 4)), Domain.SOURCE, ["a", "b"])
    np.testing.assert_allclose(selection.probabilities, 1 / 7)


def test_padded_arm_contexts_do_not_change_the_others():
    policy = trained_policy(context_kind="per_arm")
    contexts = batch(policy, 4)
    padded = np.concatenate([contexts, np.zeros((4, 2, 4), dtype=np.float32)], axis=1)
    eligible = np.arange(5) < np.full((4, 1), 3)
    plain = policy.select_many(contexts, Domain.SOURCE, IDS[:4])
    masked = policy.select_many(padded, Domain.SOURCE, IDS[:4], eligible)
    np.testing.assert_array_equal(masked.arms, plain.arms)
    np.testing.assert_allclose(masked.probabilities[:, :3], plain.probabilities)


def test_policy_does_not_move_with_its_learner(taught):
    policy = taught.policy()
    before = policy.score_many(np.ones((1, 4)), Domain.SOURCE).ucb.copy()
    teach(taught, make_rounds(taught.config, 20, seed=5))
    np.testing.assert_array_equal(policy.score_many(np.ones((1, 4)), Domain.SOURCE).ucb, before)


def test_policy_names_what_it_was_built_from(taught):
    taught.advance(77)
    version = taught.policy(version=12).version
    assert (version.version, version.encoder_version, version.offset) == (12, 2, 77)


@pytest.mark.parametrize("changes", [{}, {"context_kind": "per_arm"}])
def test_empty_batch_selects_nothing(changes):
    policy = trained_policy(**changes)
    selection = policy.select_many(batch(policy, 0), Domain.SOURCE, [])
    assert selection.arms.shape == (0,)
    assert selection.probabilities.shape == (0, 3)


BAD_BATCHES = {
    "one context": np.ones(4),
    "wrong size": np.ones((2, 5)),
    "too many axes": np.ones((2, 3, 4)),
    "NaN": [[1, 2, 3, np.nan]],
    "infinity": [[1, 2, 3, np.inf]],
    "beyond float32": [[1, 2, 3, 1e39]],
    "words": [["a", "b", "c", "d"]],
}


@pytest.mark.parametrize("contexts", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_bad_batch_is_a_value_error_naming_the_context(taught, contexts):
    ids = IDS[: len(contexts)]
    with pytest.raises(ValueError, match=r"^context: "):
        taught.policy().select_many(contexts, Domain.SOURCE, ids)


def test_round_without_arms_is_refused():
    policy = trained_policy(context_kind="per_arm")
    with pytest.raises(ValueError, match=r"^arms: "):
        policy.select_many(np.ones((2, 0, 4)), Domain.SOURCE, ["a", "b"])


def test_shared_context_is_refused_where_every_arm_has_its_own():
    with pytest.raises(ValueError, match=r"^context: "):
        trained_policy(context_kind="per_arm").select_many(
            np.ones((2, 4)), Domain.SOURCE, ["a", "b"]
        )


@pytest.mark.parametrize(
    "eligible",
    [
        np.ones((2, 4), dtype=np.bool_),
        np.ones((2, 3)),
        np.ones(3, dtype=np.bool_),
        np.array([[True, True, True], [False, False, False]]),
    ],
)
def test_bad_eligibility_is_a_value_error_naming_it(taught, eligible):
    with pytest.raises(ValueError, match=r"^eligible: "):
        taught.policy().select_many(np.ones((2, 4)), Domain.SOURCE, ["a", "b"], eligible)


def test_number_of_ids_must_be_that_of_contexts(taught):
    with pytest.raises(ValueError, match=r"^decisions: "):
        taught.policy().select_many(np.ones((2, 4)), Domain.SOURCE, ["a"])


def test_keys_draw_as_the_ids_they_belong_to():
    policy = trained_policy(epsilon=1.0)
    keys = draw_keys(IDS)
    by_key = policy.select_many(batch(policy), Domain.SOURCE, keys)
    by_id = policy.select_many(batch(policy), Domain.SOURCE, IDS)
    np.testing.assert_array_equal(by_key.arms, by_id.arms)
    assert len(set(by_id.arms.tolist())) == 3


def test_logged_decision_can_be_drawn_again_from_its_seed_and_id():
    policy = trained_policy(epsilon=1.0)
    selection = policy.select_many(batch(policy), Domain.SOURCE, IDS)
    keys = draw_keys(IDS)
    again = drawn_arms(selection.probabilities, KeyedUniforms(policy.seed, "draw"), keys)
    np.testing.assert_array_equal(again, selection.arms)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("keys", [np.array([-1, 5]), np.array([0.5, 1.5]), np.array(["a", "b"])])
def test_keys_that_are_no_64_bit_keys_are_a_value_error_naming_them(taught, keys, count):
    with pytest.raises(ValueError, match=r"^decisions: "):
        taught.policy().select_many(np.ones((count, 4)), Domain.SOURCE, keys[:count])


def test_selecting_changes_neither_contexts_nor_learner(taught):
    contexts = batch(taught.policy())
    before = contexts.copy()
    state = torch.random.get_rng_state()
    taught.policy().select_many(contexts, Domain.SOURCE, IDS)
    np.testing.assert_array_equal(contexts, before)
    assert torch.equal(torch.random.get_rng_state(), state)
