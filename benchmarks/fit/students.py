"""Students, from one domain to another: the files' own columns."""

from benchmarks.datasets.folder import DataFolder
from benchmarks.datasets.students import ARMS, both_domains, load_students
from benchmarks.fit.task import FitTask, coded_rows

LATER = ("G2", "G3")
SCHOOL = "school"


def students(name: str, folder: DataFolder) -> FitTask:
    """`students:mathematics-portuguese`: which of three courses is right."""
    task = load_students(name, folder)
    # Between the schools of one file the school is the domain.
    left_out = set(LATER) if "mathematics" in name else {*LATER, SCHOOL}
    source, target = (
        [{column: cell for column, cell in row.items() if column not in left_out} for row in rows]
        for rows in both_domains(name, folder)
    )
    return FitTask(
        ARMS,
        raw=(source, target),
        coded=(coded_rows(task.source_contexts), coded_rows(task.target_contexts)),
        best=(task.source_rewards.argmax(axis=1), task.target_rewards.argmax(axis=1)),
    )
