"""`make licences`: the licences of all that runs with the service, and whether Apache-2.0 may ship with them.

    python -m release.licences [--notices FILE] [--extra NAME]…

It looks at what is installed here. A licence that is not in `ALLOWED` fails the command: look at it, then
add it here, or replace the package.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "daband"
# Permissive licences, and those with a copyleft for their own files alone (MPL, PSF-like terms).
ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND"),
        *(
            "ISC",
            "MIT",
            "MIT-0",
            "MIT-CMU",
            "MPL-2.0",
            "PSF-2.0",
            "Python-2.0",
            "Unlicense",
            "Zlib",
        ),
        *("CNRI-Python", "Apache-2.0 WITH LLVM-exception"),
    }
)
# What packages write instead of an SPDX expression.
SPOKEN = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "dual license": "Apache-2.0 OR BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "psf": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
# Never part of a wheel or of the image for CPUs; who installs torch with CUDA accepts its terms.
NOT_SHIPPED = re.compile(r"nvidia-.*|cuda-.*")
TEXTS = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


class Licensed(NamedTuple):
    """A package and the licence that it states."""

    name: str
    version: str
    licence: str
    is_allowed: bool


def needed(project: str, extras: frozenset[str] = frozenset()) -> Iterator[Distribution]:
    """All that a project needs to run, each once, in the order in which it is met."""
    seen: set[tuple[str, frozenset[str]]] = set()
    found: set[str] = set()
    pending = [(project, extras)]
    while pending:
        name, wanted = pending.pop(0)
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        there = distribution(name)
        if name not in found | {project}:
            found.add(name)
            yield there
        pending += [
            (canonicalize_name(each.name), frozenset(each.extras))
            for each in map(Requirement, there.requires or ())
            if _applies(each, wanted) and not NOT_SHIPPED.fullmatch(canonicalize_name(each.name))
        ]


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras))


def licence_of(package: Distribution) -> str:
    """The SPDX expression of a package, or what it states instead."""
    stated = _stated(package, "License-Expression")
    if stated:
        return stated
    classified = [
        each.rpartition(" :: ")[2]
        for each in package.metadata.get_all("Classifier") or ()
        if each.startswith("License :: ") and not each.endswith(":: OSI Approved")
    ]
    first = (_stated(package, "License").strip().splitlines() or ["unknown"])[0]
    named = first if _spdx(first) else " AND ".join(map(_spoken, classified))
    return _spoken(named or first)


def _stated(package: Distribution, field: str) -> str:
    return str((package.metadata.get_all(field) or [""])[0])


def _spoken(text: str) -> str:
    return SPOKEN.get(text.lower(), text)


def _spdx(text: str) -> bool:
    return is_allowed(_spoken(text))


def is_allowed(expression: str) -> bool:
    """Whether every part of an expression is allowed, or one of its choices."""
    parts = re.sub(r"[()]", "", expression).split(" AND ")
    return all(any(each.strip() in ALLOWED for each in part.split(" OR ")) for part in parts)


def report(extras: frozenset[str] = frozenset()) -> list[Licensed]:
    """What runs with the service, by name."""
    found = [
        Licensed(each.name, each.version, licence, is_allowed(licence))
        for each in needed(PROJECT, extras)
        for licence in (licence_of(each),)
    ]
    return sorted(found, key=lambda each: each.name.lower())


def notices(extras: frozenset[str] = frozenset()) -> str:
    """The licence texts of all packages, as a file beside an image."""
    parts = []
    for package in sorted(needed(PROJECT, extras), key=lambda each: each.name.lower()):
        texts = [each for each in package.files or () if _is_text(each.parts)]
        content = [Path(str(each.locate())).read_text(errors="replace") for each in texts]
        head = f"{package.name} {package.version}: {licence_of(package)}"
        parts.append("\n\n".join((head, *content)))
    return f"\n\n{'=' * 80}\n".join(parts)


def _is_text(parts: tuple[str, ...]) -> bool:
    return parts[0].endswith(".dist-info") and TEXTS.search(parts[-1]) is not None


def main() -> None:
    """Print every package with its licence; fail for one that is not allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--notices", type=Path)
    given = parser.parse_args()
    extras = frozenset(given.extra)
    found = report(extras)
    for each in found:
        print(f"{each.name} {each.version}\t{each.licence}{'' if each.is_allowed else '  ← !'}")
    if given.notices:
        given.notices.parent.mkdir(parents=True, exist_ok=True)
        given.notices.write_text(notices(extras))
    refused = [each.name for each in found if not each.is_allowed]
    if refused:
        sys.exit(f"Not known to be compatible with Apache-2.0: {', '.join(refused)}")


if __name__ == "__main__":
    main()
