import gzip
import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from benchmarks.datasets import (
    folder as folders,
    gdsc,
    office_caltech,
    pancreas,
    simulated,
    warfarin,
)
from benchmarks.datasets.folder import ChecksumError, DataFolder, MissingDataError


@pytest.fixture
def folder(tmp_path) -> DataFolder:
    """A folder of generated files: nothing to compare them with."""
    return DataFolder(tmp_path, checksums={})


def write_csv(folder: DataFolder, name: str, rows: Sequence[Mapping[str, object]]) -> None:
    path = folder.root / name
    path.parent.mkdir(exist_ok=True)
    lines: list[list[object]] = [list(rows[0]), *(list(row.values()) for row in rows)]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)


def write_npz(folder: DataFolder, name: str, **arrays) -> None:
    path = folder.root / name
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


# The folder


def test_a_missing_file_says_what_to_put_where(folder):
    with pytest.raises(MissingDataError) as caught:
        office_caltech.load_office_caltech("office-caltech:amazon-dslr", folder)
    message = str(caught.value)
    assert str(folder.root / office_caltech.FILE) in message
    assert "Gong et al. (2012)" in message
    assert "DABAND_DATA" in message


def test_another_checksum_is_an_error_that_names_both(tmp_path):
    (tmp_path / "a").write_bytes(b"data")
    right = hashlib.sha256(b"data").hexdigest()
    assert DataFolder(tmp_path, {"a": right}).file("a", "").read_bytes() == b"data"
    with pytest.raises(ChecksumError, match=f"{right}, not 00"):
        DataFolder(tmp_path, {"a": "00"}).file("a", "")


def test_real_files_are_checked_by_default(tmp_path):
    path = tmp_path / office_caltech.FILE
    path.parent.mkdir()
    path.write_bytes(b"something else")
    with pytest.raises(ChecksumError):
        office_caltech.load_office_caltech("office-caltech:amazon-dslr", DataFolder(tmp_path))


def test_the_variable_wins_over_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    assert folders.default_root() == tmp_path / ".cache" / "daband"
    monkeypatch.setenv(folders.VARIABLE, "/somewhere")
    assert str(folders.default_root()) == "/somewhere"


# Office-Caltech


def test_office_caltech_is_roots_of_shares(folder):
    counts = {
        f"{key}_surf": np.array([[1, 3, 0, 0], [0, 0, 2, 2]], np.uint8)
        for key in office_caltech.KEYS.values()
    }
    labels = {f"{key}_y": np.array([1, 0], np.uint8) for key in office_caltech.KEYS.values()}
    counts["webcam_surf"] = np.array([[0, 4, 0, 0]], np.uint8)
    labels["webcam_y"] = np.array([1], np.uint8)
    write_npz(folder, office_caltech.FILE, **counts, **labels, classes=np.array(["bag", "mug"]))
    task = office_caltech.load_office_caltech("office-caltech:caltech-webcam", folder)
    np.testing.assert_allclose(task.source_contexts[0], [1, math.sqrt(3), 0, 0], rtol=1e-6)
    np.testing.assert_allclose((task.source_contexts**2).mean(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(task.source_rewards, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(task.test_contexts, [[0, 2, 0, 0]])
    assert task.arms == ("bag", "mug")


def test_office_caltech_has_all_ordered_pairs():
    assert len(set(office_caltech.NAMES)) == 12
    assert "office-caltech:amazon-webcam" in office_caltech.NAMES


# Pancreas


def test_pancreas_keeps_shared_classes_and_scales_by_all_molecules(folder):
    write_npz(
        folder,
        pancreas.FILE,
        mouse_counts=np.array([[1, 0], [2, 3], [5, 5]], np.uint16),
        mouse_total_umi=np.array([10_000, 20_000, 10]),
        mouse_class=np.array(["beta", "alpha", "only mouse"]),
        human_counts=np.array([[0, 7], [1, 1]], np.uint16),
        human_total_umi=np.array([5_000, 10]),
        human_class=np.array(["beta", "only human"]),
    )
    # "alpha" is in the mouse alone here: one shared class is left.
    task = pancreas.load_pancreas("pancreas:mouse-human", folder)
    assert task.arms == ("beta",)
    np.testing.assert_allclose(task.source_contexts, [[math.log(2), 0]], rtol=1e-6)
    np.testing.assert_allclose(task.test_contexts, [[0, math.log1p(14)]], rtol=1e-6)


def test_pancreas_arms_follow_the_labels(folder):
    write_npz(
        folder,
        pancreas.FILE,
        mouse_counts=np.ones((3, 2), np.uint16),
        mouse_total_umi=np.full(3, 10),
        mouse_class=np.array(["b", "c", "a"]),
        human_counts=np.ones((3, 2), np.uint16),
        human_total_umi=np.full(3, 10),
        human_class=np.array(["c", "a", "a"]),
    )
    task = pancreas.load_pancreas("pancreas:mouse-human", folder)
    assert task.arms == ("a", "c")
    np.testing.assert_array_equal(task.source_rewards, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(task.test_rewards, [[0, 1], [1, 0], [1, 0]])


# GDSC


def test_sensitivity_is_a_rank_within_the_drug():
    ranks = gdsc.sensitivity_ranks(np.array([2.0, -1.0, 5.0, 2.0, 9.0]))
    np.testing.assert_allclose(ranks, [0.625, 1.0, 0.25, 0.625, 0.0])


def write_gdsc(folder: DataFolder, tissues: list[str], missing: dict[tuple[int, int], bool]):
    """12 drugs; a missing pair is (cell line, drug)."""
    lines = range(len(tissues))
    responses: list[dict[str, object]] = [
        {"COSMIC_ID": 100 + i}
        | {
            f"Drug_{j}_IC50": "" if (i, j) in missing else str((i * 7 + j * 3) % 11 - 5)
            for j in range(12)
        }
        for i in lines
    ]
    features = [
        {
            "COSMIC_ID": 100 + i,
            "TISSUE_FACTOR": tissues[i],
            "MSI_FACTOR": 1,
            "TP53_mut": i % 2,
            "gain_1": 1,
        }
        for i in lines
    ]
    write_csv(folder, gdsc.RESPONSES, list(reversed(responses)))
    write_csv(folder, gdsc.FEATURES, features)


def test_gdsc_takes_the_drugs_observed_most_and_drops_incomplete_lines(folder):
    tissues = ["lung", "skin", "lung_SCLC", "lung_NSCLC", "skin", "bone"]
    # Drugs 0 and 1 are observed least, so 2 to 11 are the arms; cell line 102 lacks drug 5.
    missing = dict.fromkeys([(0, 0), (1, 0), (3, 1), (4, 1), (2, 5)], True)
    write_gdsc(folder, tissues, missing)
    task = gdsc.load_gdsc("gdsc:lung-skin", folder)
    assert set(task.arms) == {f"Drug_{j}" for j in range(2, 12)}
    np.testing.assert_array_equal(task.source_contexts, [[0, 1], [1, 1]])
    np.testing.assert_array_equal(task.test_contexts, [[1, 1], [0, 1]])
    assert not task.exclusive_rewards
    column = task.arms.index("Drug_2")
    logs = np.array([(i * 7 + 6) % 11 - 5 for i in range(6)], np.float64)
    for rewards, lines in ((task.source_rewards, [0, 3]), (task.test_rewards, [1, 4])):
        np.testing.assert_allclose(rewards[:, column], gdsc.sensitivity_ranks(logs[lines]))


def test_gdsc_source_rewards_do_not_depend_on_the_target(folder):
    tissues = ["lung", "skin", "lung_SCLC", "lung_NSCLC", "skin", "leukemia", "lymphoma"]
    write_gdsc(folder, tissues, {})
    skin, blood = (gdsc.load_gdsc(f"gdsc:lung-{group}", folder) for group in ("skin", "blood"))
    np.testing.assert_array_equal(skin.source_rewards, blood.source_rewards)
    for rewards in (skin.source_rewards, skin.target_rewards):
        assert set(np.unique(rewards)) <= {0.0, 0.5, 1.0}  # ranks of three and of two cell lines


# Warfarin


def patient(**changes) -> dict[str, str]:
    columns = {
        **dict.fromkeys((name for names in warfarin._YES_NO for name in names), "0.0"),
        **dict.fromkeys((name for name, _, _ in warfarin._LINKED_SITES), ""),
        "Project Site": "1",
        "Race (OMB)": "White",
        "Age": "60 - 69",
        "Height (cm)": "168",
        "Weight (kg)": "78",
        "Indication for Warfarin Treatment": "3; 8",
        "Subject Reached Stable Dose of Warfarin": "1.0",
        "Therapeutic Dose of Warfarin": "35.0",
        "CYP2C9 consensus": "*1/*1",
    }
    return {**columns, **changes}


def rows(*changes: dict[str, str]) -> list[dict[str, str]]:
    return [patient(**change) for change in changes]


def dose(value: float, **changes) -> dict[str, str]:
    return {"Therapeutic Dose of Warfarin": str(value), **changes}


def test_warfarin_doses_are_cut_at_21_and_49(folder):
    asian = {"Race (OMB)": "Asian"}
    doses = [dose(20.9), dose(21), dose(49), dose(49.1), dose(10, **asian), dose(70, **asian)]
    unstable = dose(30, **{"Subject Reached Stable Dose of Warfarin": "0.0"})
    undosed = {"Therapeutic Dose of Warfarin": ""}
    others = [unstable, undosed, {"Race (OMB)": "Unknown"}]
    write_csv(folder, warfarin.FILE, rows(*doses, *others))
    task = warfarin.load_warfarin("warfarin:white-asian", folder)
    np.testing.assert_array_equal(task.source_rewards.argmax(axis=1), [0, 1, 1, 2])
    np.testing.assert_array_equal(task.test_rewards.argmax(axis=1), [0, 2])


def test_warfarin_contexts_do_not_read_the_dose():
    people = rows({}, {"Age": "90+"})
    contexts = warfarin.patient_contexts(people, has_race=True)
    for person in people:
        del person["Therapeutic Dose of Warfarin"]
    np.testing.assert_array_equal(warfarin.patient_contexts(people, has_race=True), contexts)


def test_warfarin_uses_race_between_sites_and_not_between_races(folder):
    people = rows(
        {}, {"Race (OMB)": "Asian", "Project Site": "3"}, {"Project Site": "3", "Age": "70 - 79"}
    )
    write_csv(folder, warfarin.FILE, people)
    by_race = warfarin.load_warfarin("warfarin:white-asian", folder)
    by_site = warfarin.load_warfarin("warfarin:site1-site3", folder)
    assert by_site.context_shape[0] == by_race.context_shape[0] + 3
    np.testing.assert_array_equal(by_race.source_contexts[0], by_race.test_contexts[0])
    np.testing.assert_array_equal(by_site.test_contexts[:, -3:], [[1, 0, 0], [0, 0, 0]])


def test_warfarin_unknown_measures_take_the_median_and_say_so():
    changes = [{"Height (cm)": value} for value in ("158", "178", "198", "")]
    contexts = warfarin.patient_contexts(rows(*changes), has_race=False)
    np.testing.assert_allclose(contexts[:, 2], [-1, 1, 3, 1])
    np.testing.assert_array_equal(contexts[:, 3], [0, 0, 0, 1])


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"VKORC1     -1639 consensus": "A/G"}, 1),
        ({"VKORC1     -1639 consensus": "G/G", "VKORC1 1173 consensus": "T/T"}, 0),
        ({"VKORC1 1173 consensus": "T/T", "Race (OMB)": "Unknown"}, 2),
        ({"VKORC1 1542 consensus": "C/G"}, 1),
        ({"VKORC1 1542 consensus": "C/G", "Race (OMB)": "Black or African American"}, None),
        ({}, None),
    ],
)
def test_warfarin_untyped_vkorc1_is_read_from_linked_sites(changes, count):
    assert warfarin.a_alleles(patient(**changes)) == count


def test_warfarin_counts_alleles_indications_and_answers():
    people = [
        patient(
            **{
                "CYP2C9 consensus": "*2/*3",
                "Simvastatin (Zocor)": "YES",
                "Phenytoin (Dilantin)": "1.0",
                "Current Smoker": "",
            }
        ),
        patient(**{"CYP2C9 consensus": "*1/*11", "Indication for Warfarin Treatment": ""}),
    ]
    first, second = warfarin.patient_contexts(people, has_race=False)[:, 6:]
    yes_no = np.zeros(18)
    yes_no[[10, 14, 17]] = 1  # simvastatin, an inducer, smoking unknown
    np.testing.assert_array_equal(first[:18], yes_no)
    np.testing.assert_array_equal(first[18:27], [0, 0, 1, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(second[18:27], [0] * 8 + [1])
    np.testing.assert_array_equal(first[27:31], [1, 1, 0, 0])
    np.testing.assert_array_equal(second[27:31], [0, 0, 1, 0])


# Simulated


@pytest.mark.parametrize("name", simulated.NAMES)
def test_simulated_tasks_have_their_class_balance(name):
    task = simulated.simulated_task(name)
    expected = simulated.UNBALANCED if "unbalanced" in name else [0.2] * 5
    for rewards in (task.target_rewards, task.test_rewards):
        np.testing.assert_allclose(rewards.mean(axis=0), expected, atol=0.04)
    np.testing.assert_allclose(task.source_rewards.mean(axis=0), [0.2] * 5, atol=0.04)
    assert not np.array_equal(task.test_contexts, task.target_contexts[: len(task.test_contexts)])
    source, target = (
        contexts[rewards[:, 0] == 1].mean(axis=0)
        for contexts, rewards in (
            (task.source_contexts, task.source_rewards),
            (task.test_contexts, task.test_rewards),
        )
    )
    assert (np.linalg.norm(source - target) > 0.5) == ("shifted" in name)
