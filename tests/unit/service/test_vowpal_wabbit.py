"""Vowpal Wabbit itself trains on and evaluates what we export as dsjson."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vowpalwabbit

from model.config import ContextKind
from service.formats.files import reading, write_log
from service.formats.jsonl import packed
from service.formats.records import LoggedDecision, LogHeader

DATA = Path(__file__).parents[2] / "data"
HEADER = LogHeader(arms=("low", "high"), context_kind=ContextKind.SHARED, context_shape=(2,))


def learnable(count: int) -> list[LoggedDecision]:
    """Rewards that a learner can find: `high` pays where the first number is positive."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(count):
        context = rng.standard_normal(2)
        chosen = int(rng.integers(2))
        found.append(
            LoggedDecision(
                decision_id=str(number),
                arms=HEADER.arms,
                arm=HEADER.arms[chosen],
                propensity=0.5,
                probabilities=(0.5, 0.5),
                reward=float((context[0] > 0) == bool(chosen)),
                context=packed(context),
            )
        )
    return found


def learned(path: Path, options: str) -> Any:
    workspace = vowpalwabbit.Workspace(f"--dsjson --cb_explore_adf {options} --quiet")
    for line in path.read_text().splitlines():
        examples = workspace.parse(line)
        workspace.learn(examples)
        workspace.finish_example(examples)
    return workspace


@pytest.mark.parametrize("options", ["--epsilon 0.2", "--squarecb", "--explore_eval --epsilon 0.1"])
def test_vw_trains_on_and_evaluates_our_export(tmp_path: Path, options: str):
    path = tmp_path / "log.dsjson"
    write_log(path, HEADER, learnable(400))
    workspace = learned(path, options)
    assert workspace.get_weighted_examples() == 400
    workspace.finish()


def test_vw_reads_the_costs_and_probabilities_that_we_wrote(tmp_path: Path):
    path = tmp_path / "log.dsjson"
    write_log(path, HEADER, learnable(400))
    workspace = learned(path, "--epsilon 0.0 --interactions ::")
    # Once it has learned, VW prefers the arm that pays.
    right = 0
    for decision, line in zip(learnable(400)[:100], path.read_text().splitlines(), strict=False):
        received = json.loads(line)
        for name in ("_label_cost", "_label_probability", "_label_Action", "_labelIndex"):
            received.pop(name)
        prediction = workspace.predict(json.dumps(received))
        best = int(np.frombuffer(decision.context, "<f4")[0] > 0)
        right += int(np.argmax(prediction) == best)
    assert right > 80
    workspace.finish()


def test_vw_reads_the_hand_made_lines(tmp_path: Path):
    path = tmp_path / "again.dsjson"
    with reading(DATA / "vw.dsjson") as reader:
        write_log(path, reader.header, reader)
    workspace = learned(path, "--epsilon 0.2")
    assert workspace.get_weighted_examples() > 0
    workspace.finish()
