"""Warfarin, site to site: the file's own columns, missing values and all."""

from benchmarks.datasets.folder import DataFolder, read_csv
from benchmarks.datasets.warfarin import (
    ARMS,
    FILE,
    ORIGIN,
    has_stable_dose,
    is_member,
    load_warfarin,
)
from benchmarks.fit.task import FitTask, coded_rows

COLUMNS = (
    "Gender",
    "Race (OMB)",
    "Age",
    "Height (cm)",
    "Weight (kg)",
    "Indication for Warfarin Treatment",
    "Diabetes",
    "Congestive Heart Failure and/or Cardiomyopathy",
    "Valve Replacement",
    "Aspirin",
    "Simvastatin (Zocor)",
    "Amiodarone (Cordarone)",
    "Carbamazepine (Tegretol)",
    "Phenytoin (Dilantin)",
    "Rifampin or Rifampicin",
    "Current Smoker",
    "CYP2C9 consensus",
    "VKORC1     -1639 consensus",
    "VKORC1 2255 consensus",
    "VKORC1 1173 consensus",
    "VKORC1 1542 consensus",
)
# Codes such as `3` and `3; 8`; one site writes YES where others write 1.
CATEGORICAL = ("Indication for Warfarin Treatment", "Simvastatin (Zocor)")


def warfarin(pair: str, folder: DataFolder) -> FitTask:
    """`site1-site7`: which of three weekly doses is right."""
    task = load_warfarin(f"warfarin:{pair}", folder)
    patients = [row for row in read_csv(folder.file(FILE, ORIGIN)) if has_stable_dose(row)]
    source, target = (
        [{name: row[name] for name in COLUMNS} for row in patients if is_member(row, domain)]
        for domain in pair.split("-")
    )
    return FitTask(
        ARMS,
        raw=(source, target),
        coded=(coded_rows(task.source_contexts), coded_rows(task.target_contexts)),
        best=(task.source_rewards.argmax(axis=1), task.target_rewards.argmax(axis=1)),
        categorical=CATEGORICAL,
    )
