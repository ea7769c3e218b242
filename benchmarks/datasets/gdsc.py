"""Drug response of cancer cell lines (GDSC v17): arms are drugs, a domain is a group of tissues.

The arms are the 10 drugs that most cell lines were tried on (of equals, the first in the file);
cell lines that lack one of them are left out: 63 of the 988.

The reward of a drug on a cell line is the share of its domain's cell lines that the drug works on less
well: 1 = the most sensitive, 0 = the least. Each domain is ranked alone, so that no source reward tells
anything about the target. The ranks are taken drug by drug, because ln IC50 of two drugs does not
compare: on one scale for all drugs the same drug is best for 96 % of the cell lines, and there is
nothing to choose.
"""

import itertools

import numpy as np

from benchmarks.datasets.folder import DataFolder, read_csv
from benchmarks.datasets.task import TransferTask, unsplit_task
from model.rounds import Booleans, Doubles, Floats

RESPONSES = "gdsc/IC50_v17.csv.gz"
FEATURES = "gdsc/genomic_features_v17.csv.gz"
ORIGIN = "It comes with PyPI's gdsctools 1.0.1 (GDSC v17, GDSC's terms of use)."
DRUG_COUNT = 10
# The kinds of lung and of blood cancers put together, and the next largest tissues of the file.
TISSUES = {
    "lung": ("lung_NSCLC", "lung_SCLC", "lung"),
    "blood": ("leukemia", "lymphoma", "myeloma"),
    "aerodigestive": ("aero_dig_tract",),
    "skin": ("skin",),
}
NAMES = tuple(f"gdsc:{a}-{b}" for a, b in itertools.permutations(TISSUES, 2))
_NOT_GENOMIC = ("COSMIC_ID", "TISSUE_FACTOR", "MSI_FACTOR")


def load_gdsc(name: str, folder: DataFolder) -> TransferTask:
    """`gdsc:SOURCE-TARGET`; contexts are the binary genomic features."""
    lines = read_csv(folder.file(FEATURES, ORIGIN))
    responses = {row.pop("COSMIC_ID"): row for row in read_csv(folder.file(RESPONSES, ORIGIN))}
    drugs = list(next(iter(responses.values())))
    tried = [responses[line["COSMIC_ID"]] for line in lines]
    logs = np.array([[float(row[drug] or "nan") for drug in drugs] for row in tried])
    chosen = np.argsort(-np.isfinite(logs).sum(axis=0), kind="stable")[:DRUG_COUNT]
    genes = [column for column in lines[0] if column not in _NOT_GENOMIC]
    contexts = np.array([[line[gene] for gene in genes] for line in lines]).astype(np.float32)
    tissues = np.array([line["TISSUE_FACTOR"] for line in lines])
    source, target = (
        _domain(contexts, logs[:, chosen], np.isin(tissues, TISSUES[group]))
        for group in name.partition(":")[2].split("-")
    )
    arms = tuple(drugs[drug].removesuffix("_IC50") for drug in chosen)
    return unsplit_task(name, arms, source, target, exclusive_rewards=False)


def _domain(contexts: Floats, log_doses: Doubles, member: Booleans) -> tuple[Floats, Floats]:
    """Contexts and rewards of the cell lines that were tried on all drugs, ranked among themselves."""
    complete = member & np.isfinite(log_doses).all(axis=1)
    rewards = [sensitivity_ranks(column) for column in log_doses[complete].T]
    return contexts[complete], np.stack(rewards, axis=1)


def sensitivity_ranks(log_doses: Doubles) -> Floats:
    """Share of the other cell lines with a higher ln IC50, ties halved, (n,)."""
    observed = np.sort(log_doses)
    below = np.searchsorted(observed, log_doses, side="left")
    above = len(observed) - np.searchsorted(observed, log_doses, side="right")
    return (0.5 + (above - below) / (2 * max(1, len(observed) - 1))).astype(np.float32)
