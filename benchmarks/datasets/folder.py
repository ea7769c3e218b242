"""The folder that holds the data: finds files, checks them, says what is missing."""

import csv
import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "DABAND_DATA"

CHECKSUMS = {
    "baron_pancreas/mouse_human.npz": "b7643ef7008a3472bf524a5a9778fcdfe2963386a175c2e8776166484f1c1d38",
    "digit/mnist.npz": "a6c039e52236aa4afc5bfccb3e4cd6b6f7ccad898a53db59f12c61b536e3760e",
    # No file but a folder: its decoded test pictures, (9001, 28, 28, 3) bytes.
    "digit/mnist_m": "3bde75907271a9cc6a8c9d68cc8abead521ccfb55c138713dc0646440988c3ef",
    "digit/mnistm_labels.npz": "e0fe3ff217a72a79f1d624b471c13b01d8bcc2862d32662e39a95e695f19c8d7",
    "digit/mnistm_test.webp": "da8fcf06e47f17f8893b7619414fcee8b6071032288eb79cb25d4da90bd765c9",
    "digit/mnistm_train.webp": "2058b46b3602ae9e76eb451a6541ddb3ebcfe35a605985c2f71e0d6c5b362c5f",
    "digit/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "digit/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "digit/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "digit/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "gdsc/IC50_v17.csv.gz": "db719ed21ab8725611b9c2ff74dfc0063ff657bc4758ccc97489a047ec46f9d7",
    "gdsc/genomic_features_v17.csv.gz": "1bc36a0d332b2d3d7acc14960a4c053a5b5415f78d063d488ad4808b72d4a93b",
    "office_caltech10/surf.npz": "d809b3d3aa5b4572ffaf4e1eb7bbd1ad4264130ff09fbbfcd142a5ec68ad0efc",
    "students/student-mat.csv": "e47f9ee225e1ee6e69b7564e6dac7123e80b8486677fe111f351964cef5dec80",
    "students/student-por.csv": "a7594a11d7771c0efe1a740824e0e833da9c4cad07c39a9766a874575563fb3f",
    "warfarin/iwpc_6256.csv.gz": "3d8d83f4ab139493267151ab0e7982241bf0a61126c910a52fc8f9268d83cba7",
}


class MissingDataError(FileNotFoundError):
    """A data set is not there; the message says what to put where."""


class ChecksumError(ValueError):
    """A file is there, but not with the bytes that the results were obtained on."""


def default_root() -> Path:
    """`DABAND_DATA`, or the user's cache."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "daband")


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder of data sets; a file named in `checksums` must have that SHA-256."""

    root: Path
    checksums: Mapping[str, str] = field(default_factory=lambda: CHECKSUMS)

    def file(self, name: str, origin: str) -> Path:
        """The checked path of a file; `origin` says how to obtain it."""
        path = self.root / name
        if not path.is_file():
            raise self.missing(name, origin)
        if (expected := self.checksums.get(name)) and (found := _sha256(path)) != expected:
            raise ChecksumError(f"{path} has SHA-256 {found}, not {expected}: obtain it again")
        return path

    def missing(self, name: str, origin: str) -> MissingDataError:
        """The error for a file or folder that is not there."""
        return MissingDataError(
            f"{self.root / name} is missing. {origin} Put it there, or set {VARIABLE} to the "
            f"folder that holds {name}."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a gzipped csv file with a header."""
    with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
