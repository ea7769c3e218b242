"""The students' tasks, and the raw tables that `benchmarks.fit` compares them with."""

import csv

import numpy as np
import pytest

from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.students import NAMES, load_students
from benchmarks.fit.students import students

ROW = {
    "school": "GP",
    "sex": "M",
    "age": "17",
    "address": "U",
    "famsize": "LE3",
    "Pstatus": "T",
    "Medu": "4",
    "Fedu": "2",
    "Mjob": "health",
    "Fjob": "other",
    "reason": "home",
    "guardian": "father",
    "traveltime": "1",
    "studytime": "2",
    "failures": "0",
    "schoolsup": "yes",
    "famsup": "no",
    "paid": "no",
    "activities": "yes",
    "nursery": "no",
    "higher": "yes",
    "internet": "no",
    "romantic": "no",
    "famrel": "4",
    "freetime": "3",
    "goout": "2",
    "Dalc": "1",
    "Walc": "1",
    "health": "5",
    "absences": "6",
    "G1": "11",
    "G2": "12",
    "G3": "13",
}
GRADES = {"mat": (("GP", 9), ("MS", 10)), "por": (("GP", 13), ("MS", 14), ("MS", 9))}


@pytest.fixture
def folder(tmp_path) -> DataFolder:
    for subject, grades in GRADES.items():
        path = tmp_path / f"students/student-{subject}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(ROW), delimiter=";")
            writer.writeheader()
            writer.writerows({**ROW, "school": school, "G3": str(g)} for school, g in grades)
    return DataFolder(tmp_path, checksums={})


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [(NAMES[0], [0, 1], [1, 2, 0]), (NAMES[1], [1], [2, 0]), (NAMES[2], [2, 0], [1])],
)
def test_the_final_grade_says_which_course_is_right(folder, name, source, target):
    task = load_students(name, folder)
    assert task.source_rewards.argmax(axis=1).tolist() == source
    assert task.target_rewards.argmax(axis=1).tolist() == target
    assert task.test_contexts is task.target_contexts


def test_later_grades_and_the_school_are_no_column(folder):
    one = load_students("students:GP-MS", folder)
    assert np.array_equal(one.source_contexts[0], one.target_contexts[0])
    assert one.context_shape == (39,)
    # sex M, famsize LE3, schoolsup, activities, higher, mother in health, reason home, guardian father.
    assert one.source_contexts[0, :25].sum() == 8
    assert one.source_contexts[0, -1] == 11


def test_raw_tables_and_tasks_are_of_the_same_students(folder):
    found = students("students:mathematics-portuguese", folder)
    assert [len(rows) for rows in (*found.raw, *found.coded)] == [2, 3, 2, 3]
    assert found.best[1].tolist() == [1, 2, 0]
    assert set(ROW) - set(found.raw[0][0]) == {"G2", "G3"}
    between = students("students:GP-MS", folder)
    assert set(ROW) - set(between.raw[0][0]) == {"G2", "G3", "school"}
