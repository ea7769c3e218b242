"""Makes `references.json`: the same random logs, evaluated by other people's libraries.

obp 0.5.7 declares Python < 3.11 and confseq 0.0.11 builds only with Boost and older numpy, so they
cannot stand among the development dependencies. They are needed here alone:

    pip install --target oracles --no-deps --ignore-requires-python obp==0.5.7 vw-estimators==0.2.2 tqdm
    (the folder src/confseq of the confseq 0.0.11 source archive goes into oracles/confseq)
    PYTHONPATH=.:oracles python -m tests.oracles.make_references

With `--check` nothing is written: the stored file is compared with what the libraries say now.
"""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "references.json"
SWITCH = 3.0
# name, rounds, arms, share of rewards, whether rewards are 0 or 1, floor of the logger, candidate
LOGS = (
    ("uniform", 120, 4, 0.3, True, 1.0, "fixed"),
    ("mixed", 150, 5, 0.5, False, 0.2, "stochastic"),
    ("rare", 160, 3, 0.05, True, 0.1, "fixed"),
    ("two arms", 40, 2, 0.5, False, 0.5, "stochastic"),
    ("no reward", 50, 3, 0.0, True, 0.3, "stochastic"),
    ("one round", 1, 2, 1.0, True, 1.0, "stochastic"),
)


def made_log(seed: int, log: tuple[Any, ...]) -> dict[str, Any]:
    """A log with the policy's and the logger's probabilities and a reward model, as plain lists."""
    name, n, arm_count, share, is_binary, floor, candidate = log
    rng = np.random.default_rng(seed)
    best = rng.integers(arm_count, size=n)
    logger = (1 - floor) * np.eye(arm_count)[best] + floor / arm_count
    arms = np.array([rng.choice(arm_count, p=row) for row in logger])
    if candidate == "fixed":
        policy = np.eye(arm_count)[rng.integers(arm_count, size=n)]
    else:
        policy = rng.dirichlet(np.ones(arm_count), size=n)
    rewards = (rng.random(n) < share).astype(float) if is_binary else share * rng.random(n)
    return {
        "name": name,
        "arms": arms.tolist(),
        "rewards": rewards.tolist(),
        "logger": logger.tolist(),
        "policy": policy.tolist(),
        "predicted": rng.random((n, arm_count)).tolist(),
        "max_weight": arm_count / floor,
    }


def expected(log: dict[str, Any]) -> dict[str, Any]:
    """What the libraries make of a log."""
    return {"points": _points(log), "intervals": _intervals(log), "sequence": _sequence(log)}


def _points(log: dict[str, Any]) -> dict[str, float]:
    from obp import ope

    arms = np.array(log["arms"])
    policy = np.array(log["policy"])[:, :, None]
    predicted = np.array(log["predicted"])[:, :, None]
    pscore = np.array(log["logger"])[np.arange(len(arms)), arms]
    given = {
        "reward": np.array(log["rewards"]),
        "action": arms,
        "pscore": pscore,
        "action_dist": policy,
        "estimated_rewards_by_reg_model": predicted,
        "position": np.zeros(len(arms), dtype=int),
    }
    kinds = {
        "ips": ope.InverseProbabilityWeighting(),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting(),
        "dm": ope.DirectMethod(),
        "dr": ope.DoublyRobust(),
        "switch_dr": ope.SwitchDoublyRobust(lambda_=SWITCH),
    }
    if log["name"] == "uniform":
        kinds["replay"] = ope.ReplayMethod()
    return {name: float(kind.estimate_policy_value(**given)) for name, kind in kinds.items()}


def _intervals(log: dict[str, Any]) -> dict[str, list[float]]:
    from estimators.bandits import clopper_pearson, cressieread

    arms = np.array(log["arms"])
    rows = np.arange(len(arms))
    made = {
        "clopper_pearson": clopper_pearson.Interval(),
        "cressie_read": cressieread.Interval(),
        "cressie_read_bounded": cressieread.Interval(wmax=log["max_weight"]),
    }
    triples = zip(
        np.array(log["logger"])[rows, arms],
        log["rewards"],
        np.array(log["policy"])[rows, arms],
        strict=True,
    )
    for triple in triples:
        for interval in made.values():
            interval.add_example(*map(float, triple))
    return {name: [float(end) for end in interval.get(0.05)] for name, interval in made.items()}


def _sequence(log: dict[str, Any]) -> dict[str, list[float]]:
    np.float_ = np.float64  # type: ignore[attr-defined]
    sys.modules.setdefault("multiprocess", types.ModuleType("multiprocess"))
    from confseq import predmix

    arms = np.array(log["arms"])
    rows = np.arange(len(arms))
    weights = np.array(log["policy"])[rows, arms] / np.array(log["logger"])[rows, arms]
    rewards = np.array(log["rewards"])
    shares = weights * rewards / log["max_weight"]
    low, high = predmix.predmix_empbern_twosided_cs(shares, running_intersection=True)
    options = {"alpha": 0.025, "truncate_mean": True, "running_intersection": True}
    free_low = predmix.predmix_empbern_lower_cs(weights * rewards, **options)
    free_high = predmix.predmix_empbern_lower_cs(weights * (1 - rewards), **options)
    return {
        "low": (log["max_weight"] * low).tolist(),
        "high": (log["max_weight"] * high).tolist(),
        "free_low": free_low.tolist(),
        "free_high": (1 - free_high).tolist(),
    }


def main() -> None:
    """Write the references, or compare them with what the libraries say."""
    made = [made_log(seed, log) for seed, log in enumerate(LOGS)]
    found = [{"log": log, "expected": expected(log)} for log in made]
    if "--check" in sys.argv:
        assert json.loads(FILE.read_text()) == json.loads(json.dumps(found))
        return
    lines = ",\n".join(json.dumps(each) for each in found)
    FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
