"""Counterfactual replay: a fresh learner replays the log on its own choices (Li 2011).

Each logged round has the reward of one arm, drawn with probabilities p(·|x). The learner would draw from
π(·|x). Keeping a round with probability

    m · π(a|x) / p(a|x),   m = min_a p(a|x) / π(a|x)

leaves arms distributed exactly as π's. The learner sees the kept rounds only, so it never sees the reward
of an arm that it did not choose. A round is kept with total probability m, so it counts as 1/m rounds. On
uniform logs this is Li's replay with fixed m. If the learner resembles the log, m is near 1.
"""

import numpy as np

from model.learner import Learner
from model.ope.candidates import decided, learn
from model.ope.logged import LoggedRounds
from model.randomness import KeyedUniforms
from model.rounds import Booleans, Doubles


class RejectionReplay:
    """Feeds a learner the rounds that it would have played itself."""

    def __init__(self, learner: Learner, refresh: int = 16) -> None:
        self.learner = learner
        self.kept_count = 0
        self._refresh = refresh
        self._draws = KeyedUniforms(learner.seed, "rejection")

    def play(self, rounds: LoggedRounds) -> tuple[Doubles, Doubles]:
        """The learner's probabilities (n, K) and each round's weight, kept/m, (n,)."""
        policies, weights = [], []
        for part in rounds.parts(self._refresh):
            policy = decided(self.learner.policy(), part)
            kept, keep_rate = self._kept(part, policy)
            learn(self.learner, kept_rounds(part, kept))
            self.kept_count += int(kept.sum())
            policies.append(policy)
            weights.append(kept / keep_rate)
        return np.concatenate(policies), np.concatenate(weights)

    def _kept(self, rounds: LoggedRounds, policy: Doubles) -> tuple[Booleans, Doubles]:
        logged = rounds.logged_probabilities
        if logged is None:
            raise ValueError(
                "log: replay needs the probability of every arm, not only of the chosen one"
            )
        ratios = np.divide(logged, policy, out=np.full_like(policy, np.inf), where=policy > 0)
        keep_rate = ratios.min(axis=1)
        if not (keep_rate > 0).all():
            raise ValueError("log: it never chose an arm that the learner would choose")
        chance = keep_rate * rounds.at_chosen(policy) / rounds.propensities
        return self._draws.many(rounds.keys) < chance, keep_rate


def kept_rounds(rounds: LoggedRounds, kept: Booleans) -> LoggedRounds:
    """Only the kept rounds; target contexts are seen before the next of them."""
    position = np.concatenate([[0], kept.cumsum()])
    return rounds.taken(kept, rounds.unlabeled, position[rounds.unlabeled_before])
