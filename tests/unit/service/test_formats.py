"""Log formats: read, written and read again without change; bad lines are reported by number."""

import io
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from model.config import ContextKind
from model.rounds import Domain
from service.formats import dsjson, jsonl, open_bandit, parquet
from service.formats.batches import Batches
from service.formats.files import FORMATS, format_of, reading, write_log
from service.formats.hashing import hashed, tokens
from service.formats.jsonl import packed
from service.formats.records import LogFormatError, LoggedDecision, LogHeader, check
from tests.support.tables import MICE

DATA = Path(__file__).parents[2] / "data"
SHARED = LogHeader(
    arms=("low", "mid", "high"), context_kind=ContextKind.SHARED, context_shape=(2, 2)
)
OFFERS = LogHeader(arms=(), context_kind=ContextKind.PER_ARM, context_shape=(3,))
ROWS = LogHeader(
    arms=("low", "high"),
    context_kind=ContextKind.SHARED,
    context_shape=(MICE.width,),
    columns=MICE.columns,
)
OWN_FORMATS = (jsonl, parquet, dsjson)


def made(header: LogHeader, count: int, seed: int = 0) -> list[LoggedDecision]:
    """Decisions with all that a record can hold."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        arms = header.arms[: 2 + number % 2] or tuple(f"offer {i}" for i in range(1 + number % 4))
        probabilities = tuple(rng.dirichlet(np.ones(len(arms))).tolist())
        chosen = int(rng.integers(len(arms)))
        size = header.context_size * (len(arms) if header.is_per_arm else 1)
        found.append(
            LoggedDecision(
                decision_id=f"décision-{number}",
                arms=arms,
                arm=arms[chosen],
                propensity=max(probabilities[chosen], 1e-3),
                probabilities=probabilities,
                reward=None if number % 5 == 4 else float(rng.random()),
                context=rng.standard_normal(size).astype("<f4").tobytes(),
                domain=Domain.TARGET if number % 5 == 4 else Domain.SOURCE,
                policy_version=number // 3,
                time="2026-01-01T00:00:00+00:00" if number % 2 else None,
                segment="top" if number % 3 else "",
            )
        )
    return found


def written(module: Any, header: LogHeader, decisions: Iterable[LoggedDecision]) -> bytes:
    file = io.BytesIO()
    module.write(file, header, decisions)
    return file.getvalue()


@pytest.mark.parametrize("module", [jsonl, parquet])
def test_an_unknown_propensity_comes_back_as_unknown(module: Any):
    found = [replace(each, propensity=None, probabilities=None) for each in made(SHARED, 5)]
    content = written(module, SHARED, found)
    assert [each.propensity for each in module.read(io.BytesIO(content))] == [None] * len(found)


@pytest.mark.parametrize("module", [dsjson, open_bandit])
def test_formats_without_unknown_propensities_refuse_them(module: Any):
    (first,) = made(SHARED, 1)
    with pytest.raises(LogFormatError, match="without a propensity"):
        written(module, SHARED, [replace(first, propensity=None, probabilities=None, reward=1.0)])


def test_probabilities_without_a_propensity_are_refused():
    (first,) = made(SHARED, 1)
    with pytest.raises(ValueError, match="missing, though there are probabilities"):
        check(replace(first, propensity=None), SHARED)


def test_a_header_whose_columns_do_not_fit_is_refused():
    content = written(jsonl, ROWS, ())
    bad = content.replace(b'"context_shape":[8]', b'"context_shape":[7]')
    with pytest.raises(LogFormatError, match="their slots"):
        jsonl.read(io.BytesIO(bad))


@pytest.mark.parametrize("header", [SHARED, OFFERS, ROWS], ids=["shared", "per arm", "table"])
@pytest.mark.parametrize("module", OWN_FORMATS, ids=lambda module: module.__name__)
def test_a_log_comes_back_as_it_was(module: Any, header: LogHeader):
    decisions = made(header, 57)
    content = written(module, header, decisions)
    reader = module.read(io.BytesIO(content))
    again = list(reader)
    assert (reader.header, again) == (header, decisions)
    assert written(module, header, again) == content


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(numbers, min_size=4, max_size=4),
    st.floats(0, 1),
    st.floats(1e-9, 1, exclude_min=True),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
def test_every_number_and_text_survives(
    context: list[float], reward: float, propensity: float, name: str
):
    decision = LoggedDecision(
        decision_id=name,
        arms=SHARED.arms,
        arm="mid",
        propensity=propensity,
        reward=reward,
        context=packed(context),
        segment=name,
    )
    for module in OWN_FORMATS:
        (again,) = module.read(io.BytesIO(written(module, SHARED, [decision])))
        assert again == decision


def test_vw_lines_come_back_as_they_were():
    content = (DATA / "vw.dsjson").read_bytes()
    reader = dsjson.read(io.BytesIO(content))
    decisions = list(reader)
    assert len(decisions) == 13  # the observation without a decision is none
    exported = written(dsjson, reader.header, decisions)
    assert list(dsjson.read(io.BytesIO(exported))) == decisions
    originals = [json.loads(line) for line in content.splitlines() if b'"c"' in line]
    for original, line in zip(originals, exported.splitlines(), strict=True):
        exported_line = json.loads(line)
        if original.get("_skipLearn"):
            original.pop("_label_cost")
        assert exported_line == original


def test_vw_lines_mean_what_vw_says():
    first = next(iter(dsjson.read(io.BytesIO((DATA / "vw.dsjson").read_bytes()))))
    assert (first.arm, first.arms) == ("Juice", ("Tea", "Juice", "Water"))
    assert (first.reward, first.propensity) == (0.0, 0.1)
    assert first.probabilities == (0.45, 0.1, 0.45)
    contexts = np.frombuffer(first.context, "<f4").reshape(3, -1)
    assert not (contexts[0] == contexts[1]).all()


def test_other_formats_carry_vw_lines_along(tmp_path: Path):
    with reading(DATA / "vw.dsjson") as reader:
        decisions, header = list(reader), reader.header
    for suffix in ("jsonl", "parquet", "jsonl.gz"):
        write_log(tmp_path / f"log.{suffix}", header, decisions)
        with reading(tmp_path / f"log.{suffix}") as again:
            write_log(tmp_path / "back.dsjson", again.header, again)
        write_log(tmp_path / "direct.dsjson", header, decisions)
        assert (tmp_path / "back.dsjson").read_bytes() == (tmp_path / "direct.dsjson").read_bytes()


def test_open_bandit_rows_come_back_as_they_were():
    content = (DATA / "open_bandit.csv").read_bytes()
    reader = open_bandit.read(io.BytesIO(content))
    decisions = list(reader)
    assert len(decisions) == 300
    assert reader.header.arms == ("0", "1", "2", "3", "4")
    assert {each.segment for each in decisions} == {"1", "2", "3"}
    assert written(open_bandit, reader.header, decisions) == content


def test_a_log_of_ours_becomes_open_bandit_rows():
    decisions = [each for each in made(SHARED, 20) if each.reward is not None]
    again = list(open_bandit.read(io.BytesIO(written(open_bandit, SHARED, decisions))))
    for ours, theirs in zip(decisions, again, strict=True):
        assert (theirs.reward, theirs.propensity) == (ours.reward, ours.propensity)
        assert SHARED.arms[int(theirs.arm)] == ours.arm
        numbers = theirs.extra["open_bandit"][6:10]
        assert packed([float(each) for each in numbers]) == ours.context


def test_open_bandit_cannot_represent_some_logs():
    with pytest.raises(LogFormatError, match="per-arm contexts"):
        written(open_bandit, OFFERS, made(OFFERS, 3))
    with pytest.raises(LogFormatError, match="without a reward"):
        written(open_bandit, SHARED, made(SHARED, 5))


GOOD = written(jsonl, SHARED, made(SHARED, 3)).splitlines()


def broken(**changes: Any) -> bytes:
    return json.dumps({**json.loads(GOOD[1]), **changes}).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "invalid JSON"),
        (b"[]", "invalid JSON"),
        (broken(reward=1.5), "reward"),
        (broken(reward="1"), "reward"),
        (broken(propensity=0.0), "propensity"),
        (broken(arm="none"), "arm"),
        (broken(arms=["low", "low", "mid"], arm="low"), "unique"),
        (broken(arms=["low", "unknown"], arm="low"), "declared"),
        (broken(probabilities=[0.1, 0.2]), "probabilities"),
        (broken(probabilities=[1.0]), "probabilities"),
        (broken(context=[[1, 2]]), "context"),
        (broken(context=[[1, 2], [3, 1e39]]), "float32"),
        (broken(context="text"), "context"),
        (broken(surprise=1), "surprise"),
    ],
)
def test_a_bad_line_is_reported_by_number_and_reason(line: bytes, reason: str):
    content = b"\n".join([GOOD[0], GOOD[1], line, GOOD[2], b"", GOOD[3]])
    with pytest.raises(LogFormatError, match="line 3: ") as refused:
        list(jsonl.read(io.BytesIO(content)))
    assert reason in str(refused.value)
    skipping = jsonl.read(io.BytesIO(content), skip_bad=True)
    assert len(list(skipping)) == 3
    assert (skipping.bad_count, skipping.first_bad[0].number) == (1, 3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"_label_Action": 7}, "_label_Action"),
        ({"_labelIndex": 0}, "_labelIndex"),
        ({"_label_probability": 0}, "propensity"),
        ({"_label_cost": 3.0}, "reward"),
        ({"pdrop": 0.5}, "pdrop"),
        ({"a": [1, 1, 2]}, "a, p"),
        ({"c": {"_multi": [], "_slots": []}}, "slots"),
        ({"c": None}, "'NoneType'"),
    ],
)
def test_a_bad_dsjson_line_is_reported(change: dict[str, Any], reason: str):
    lines = (DATA / "vw.dsjson").read_bytes().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change}).encode()
    with pytest.raises(LogFormatError, match="line 2: ") as refused:
        list(dsjson.read(io.BytesIO(b"\n".join(lines))))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        (4, "2", "reward"),
        (5, "0", "propensity"),
        (3, "4", "position"),
        (2, "99", "arm"),
        (12, "x", "float"),
    ],
)
def test_a_bad_csv_row_is_reported(column: int, cell: str, reason: str):
    rows = [line.split(",") for line in (DATA / "open_bandit.csv").read_text().splitlines()[:4]]
    rows[2][column] = cell
    content = "\n".join(",".join(row) for row in rows).encode()
    with pytest.raises(LogFormatError, match="line 3: ") as refused:
        list(open_bandit.read(io.BytesIO(content)))
    assert reason in str(refused.value)


def test_files_that_are_no_logs_are_refused():
    for module, content in (
        (jsonl, b'{"a": 1}\n'),
        (parquet, b"nothing"),
        (open_bandit, b""),
        (open_bandit, b"a,b\n1,2\n"),
        (dsjson, b'{"daband": {}}'),
    ):
        with pytest.raises(LogFormatError):
            list(module.read(io.BytesIO(content)))
    with pytest.raises(LogFormatError, match="must end in one of"):
        format_of(Path("log.txt"))
    assert {format_of(Path(f"log.{name}.gz")) for name in FORMATS} == set(FORMATS)


def test_the_schema_describes_every_line():
    validator = jsonschema_rs.validator_for(jsonl.schema())
    for line in written(jsonl, OFFERS, made(OFFERS, 10)).splitlines():
        assert validator.is_valid(json.loads(line))
    assert not validator.is_valid({"decision_id": 1})


def test_the_stored_schema_is_the_codes_own():
    stored = Path(__file__).parents[3] / "docs" / "log.schema.json"
    assert json.loads(stored.read_text()) == json.loads(json.dumps(jsonl.schema())), (
        "run `make docs`"
    )


def test_features_are_hashed_by_name():
    found = dict(tokens({"a": [{"x": 1, "y": "red"}], "n": [0.5, 2], "_skip": 1, "t": True}))
    assert found == {"/a/x": 1.0, "/a/y=red": 1.0, "/n/0": 0.5, "/n/1": 2.0, "/t": 1.0}
    assert np.abs(hashed(list(found.items()), 4096)).sum() == pytest.approx(5.5)


@pytest.mark.parametrize("header", [SHARED, OFFERS], ids=["shared", "per arm"])
def test_batches_hold_what_the_decisions_say(header: LogHeader):
    decisions = made(header, 57)
    batches = list(Batches(header, size=10).of(decisions))
    rewarded = [each for each in decisions if each.reward is not None]
    assert sum(len(each) for each in batches) == len(rewarded)
    assert sum(len(each.unlabeled) for each in batches) == 57 - len(rewarded)
    row = iter(rewarded)
    for batch in batches:
        batch.check()
        for index in range(len(batch)):
            decision = next(row)
            assert batch.rewards[index] == decision.reward
            assert batch.propensities[index] == decision.propensity
            assert batch.arm_counts[index] == len(decision.arms)
            assert batch.probabilities is not None
            chosen = batch.probabilities[index, batch.arms[index]]
            assert chosen == (decision.probabilities or ())[decision.arms.index(decision.arm)]


def test_batches_of_the_target_are_its_rounds():
    decisions = [each for each in made(SHARED, 20) if each.domain is Domain.SOURCE]
    batches = Batches(SHARED, Domain.TARGET)
    assert list(batches.of(decisions)) == []
    assert batches.passed_count == len(decisions)


@pytest.mark.parametrize("name", ["jsonl", "parquet", "dsjson"])
@pytest.mark.slow
def test_a_long_log_passes_in_bounded_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parquet, "ROWS", 512)

    def repeated(times: int) -> Iterator[LoggedDecision]:
        some = made(SHARED, 500)
        for _ in range(times):
            yield from some

    def peak(times: int) -> int:
        path = tmp_path / f"log.{name}"
        tracemalloc.start()
        write_log(path, SHARED, repeated(times))
        with reading(path) as reader:
            count = sum(len(batch) for batch in Batches(SHARED, size=512).of(reader))
        assert count == times * 400
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    def needed(times: int) -> int:
        # Garbage that waits to be collected only adds to a peak, now more and now less.
        return min(peak(times) for _ in range(3))

    peak(1)
    assert needed(12) < 1.25 * needed(6)
