"""Students of two Portuguese schools (UCI 320, Cortez and Silva 2008): which course fits after the first term.

The three arms are a course of support, the standard one, and an advanced one. The right one follows from the
final grade G3, of 20: below 10, up to 13, and above. Contexts are all columns but G2 and G3, which come later.
"""

import csv

import numpy as np

from benchmarks.datasets.folder import DataFolder
from benchmarks.fit.task import FitTask, Row, coded_rows
from model.rounds import Floats

ORIGIN = "UCI Machine Learning Repository, data set 320 (CC BY 4.0)."
ARMS = ("support", "standard", "advanced")
PASSES, EXCELS = 10, 14  # points of G3
LATER = ("G2", "G3")
SCHOOL = "school"
# Name → file and school of source and target.
PAIRS = {
    "mathematics-portuguese": (("mat", None), ("por", None)),
    "school GP-school MS": (("por", "GP"), ("por", "MS")),
    "school MS-school GP": (("por", "MS"), ("por", "GP")),
}
_ONE = {"sex": "M", "address": "R", "famsize": "LE3", "Pstatus": "A"}
_YES_NO = (
    *("schoolsup", "famsup", "paid", "activities", "nursery", "higher", "internet", "romantic"),
)
_JOBS = ("teacher", "health", "services", "at_home")
_LEVELS = {
    "Mjob": _JOBS,
    "Fjob": _JOBS,
    "reason": ("home", "reputation", "course"),
    "guardian": ("mother", "father"),
}
_NUMBERS = (
    *("age", "Medu", "Fedu", "traveltime", "studytime", "failures", "famrel", "freetime", "goout"),
    *("Dalc", "Walc", "health", "absences", "G1"),
)


def students(pair: str, folder: DataFolder) -> FitTask:
    """The raw tables, and what somebody who knows them would make of them."""
    source, target = (_members(folder, *domain) for domain in PAIRS[pair])
    left_out = {*LATER, SCHOOL} if "school" in pair else set(LATER)
    raw = [
        [{name: cell for name, cell in row.items() if name not in left_out} for row in rows]
        for rows in (source, target)
    ]
    return FitTask(
        ARMS,
        raw=(raw[0], raw[1]),
        coded=(coded_rows(contexts(source)), coded_rows(contexts(target))),
        best=(_best(source), _best(target)),
    )


def contexts(rows: list[Row]) -> Floats:
    """The loader: one number for two levels, one for each of several but the last, numbers as they are."""
    return np.array([_context(row) for row in rows], dtype=np.float32)


def _context(row: Row) -> list[float]:
    ones = [row[name] == level for name, level in _ONE.items()]
    yes = [row[name] == "yes" for name in _YES_NO]
    levels = [row[name] == level for name, each in _LEVELS.items() for level in each]
    return [*map(float, (*ones, *yes, *levels)), *(float(row[name]) for name in _NUMBERS)]


def _members(folder: DataFolder, subject: str, school: str | None) -> list[Row]:
    path = folder.file(f"students/student-{subject}.csv", ORIGIN)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter=";"))
    return [row for row in rows if school in (None, row[SCHOOL])]


def _best(rows: list[Row]) -> np.ndarray:
    return np.digitize([int(row["G3"]) for row in rows], (PASSES, EXCELS))
