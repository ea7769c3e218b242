"""Writes the tables of the tutorial: `python -m docs.tutorial.simulate`.

Mice were treated, and their tumours measured. Humans are to be treated. Two markers say which treatment
works; humans have the same biology on another scale, and other proportions of the subtypes.
"""

import csv
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
ARMS = ("placebo", "low", "high")
SUBTYPES = ("I", "II", "III")
# The mean shrinkage of a tumour in per cent, by subtype and arm.
EFFECT = {"I": (5.0, 20.0, 60.0), "II": (5.0, 55.0, 15.0), "III": (35.0, 0.0, -10.0)}
# The markers (il6, ki67) of each subtype.
MARKERS = {"I": (2.0, 30.0), "II": (6.0, 55.0), "III": (9.0, 20.0)}
NOISE = 8.0


def main() -> None:
    """Write all tables."""
    random = np.random.default_rng(11)
    mice = [_subject(random, (0.4, 0.35, 0.25), 1.0, 0.0) for _ in range(600)]
    humans = [_subject(random, (0.35, 0.35, 0.3), 1.1, 0.4) for _ in range(200)]
    _write("mice.csv", [_mouse(random, number, each) for number, each in enumerate(mice, 1)])
    _write("humans.csv", [_human(random, number, each) for number, each in enumerate(humans, 1)])
    _write("truth.csv", [_truth(number, each) for number, each in enumerate(humans, 1)])


def _subject(
    random: np.random.Generator, shares: tuple[float, ...], scale: float, offset: float
) -> dict[str, object]:
    subtype = str(random.choice(SUBTYPES, p=shares))
    il6, ki67 = MARKERS[subtype]
    return {
        "subtype": subtype,
        "il6": round(float(scale * random.normal(il6, 0.9) + offset), 2),
        "ki67": round(float(scale * random.normal(ki67, 6.0)), 1),
        "sex": str(random.choice(("f", "m"))),
        "crp": round(float(random.gamma(2.0, 3.0)), 1),
        "treated_before": bool(random.random() < 0.3),
    }


def _columns(random: np.random.Generator, subject: dict[str, object]) -> dict[str, object]:
    seen = {name: value for name, value in subject.items() if name != "subtype"}
    if random.random() < 0.08:
        seen["crp"] = ""
    seen["treated_before"] = "true" if subject["treated_before"] else "false"
    return seen


def _mouse(
    random: np.random.Generator, number: int, subject: dict[str, object]
) -> dict[str, object]:
    arm = int(random.integers(len(ARMS)))
    outcome = EFFECT[str(subject["subtype"])][arm] + random.normal(0.0, NOISE)
    return {
        "mouse": f"m{number:03}",
        **_columns(random, subject),
        "treatment": ARMS[arm],
        "shrinkage": round(float(outcome), 1),
    }


def _human(
    random: np.random.Generator, number: int, subject: dict[str, object]
) -> dict[str, object]:
    return {"patient_id": f"p{number:03}", **_columns(random, subject)}


def _truth(number: int, subject: dict[str, object]) -> dict[str, object]:
    effects = EFFECT[str(subject["subtype"])]
    return {"patient_id": f"p{number:03}", **dict(zip(ARMS, effects, strict=True))}


def _write(name: str, rows: list[dict[str, object]]) -> None:
    with (FOLDER / name).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
