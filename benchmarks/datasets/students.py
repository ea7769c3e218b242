"""Students of two Portuguese schools (UCI 320, Cortez and Silva 2008): which course fits after the first term.

The three arms are a course of support, the standard one, and an advanced one. The right one follows from the
final grade G3, of 20: below 10, up to 13, and above. Contexts are all columns but G2 and G3, which come later.
"""

import csv

import numpy as np

from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from model.rounds import Floats, Integers

ORIGIN = "UCI Machine Learning Repository, data set 320 (CC BY 4.0)."
ARMS = ("support", "standard", "advanced")
PASSES, EXCELS = 10, 14  # points of G3
# Domain → file and school.
_DOMAINS = {
    "mathematics": ("mat", None),
    "portuguese": ("por", None),
    "GP": ("por", "GP"),
    "MS": ("por", "MS"),
}
NAMES = ("students:mathematics-portuguese", "students:GP-MS", "students:MS-GP")
Student = dict[str, str]
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


def load_students(name: str, folder: DataFolder) -> TransferTask:
    """`students:SOURCE-TARGET`; the school is no column."""
    source, target = (
        (contexts(rows), one_hot(best_arms(rows), len(ARMS))) for rows in both_domains(name, folder)
    )
    return unsplit_task(name, ARMS, source, target)


def both_domains(name: str, folder: DataFolder) -> tuple[list[Student], list[Student]]:
    """The rows of source and target, as the files have them."""
    source, target = name.partition(":")[2].split("-")
    return _members(folder, source), _members(folder, target)


def _members(folder: DataFolder, domain: str) -> list[Student]:
    subject, school = _DOMAINS[domain]
    path = folder.file(f"students/student-{subject}.csv", ORIGIN)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter=";"))
    return [row for row in rows if school in (None, row["school"])]


def contexts(rows: list[Student]) -> Floats:
    """One number for two levels, one for each of several but the last, numbers as they are."""
    return np.array([_context(row) for row in rows], dtype=np.float32)


def _context(row: Student) -> list[float]:
    ones = [row[name] == level for name, level in _ONE.items()]
    yes = [row[name] == "yes" for name in _YES_NO]
    levels = [row[name] == level for name, each in _LEVELS.items() for level in each]
    return [*map(float, (*ones, *yes, *levels)), *(float(row[name]) for name in _NUMBERS)]


def best_arms(rows: list[Student]) -> Integers:
    """The arm that the final grade asks for."""
    return np.digitize([int(row["G3"]) for row in rows], (PASSES, EXCELS))
