"""The fonts that digits are drawn in: faces that Debian packages."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.datasets.folder import MissingDataError

FONTS = Path("/usr/share/fonts")
# Package → its faces that stay legible when small: no hairlines, no digits that look like letters. Other faces of Noto have those of Noto Sans.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "fonts-dejavu": ("truetype/dejavu/DejaVuS*.ttf",),
    "fonts-liberation": ("truetype/liberation/Liberation*.ttf",),
    "fonts-freefont-ttf": ("truetype/freefont/Free*.ttf",),
    "fonts-noto-core": (
        *("truetype/noto/NotoSans-*.ttf", "truetype/noto/NotoSansDisplay-*.ttf"),
        *("truetype/noto/NotoSerif-*.ttf", "truetype/noto/NotoSerifDisplay-*.ttf"),
    ),
    "fonts-lato": ("truetype/lato/Lato-[BMRLS]*.ttf",),
    "fonts-comic-neue": ("opentype/comic-neue/ComicNeue-*.otf",),
    "fonts-quicksand": ("truetype/quicksand/Quicksand-*.ttf",),
    "fonts-dosis": ("opentype/dosis/Dosis-*.otf",),
    "fonts-dkg-handwriting": ("truetype/fifthhorseman/dkg*.ttf",),
    "fonts-breip": ("truetype/breip/Breip.ttf",),
    "fonts-humor-sans": ("truetype/humor-sans/Humor-Sans.ttf",),
    "fonts-ecolier-court": ("truetype/ecolier-court/Ecolier-court.ttf",),
    "fonts-isabella": ("truetype/isabella/Isabella.ttf",),
    "fonts-rufscript": ("truetype/rufscript/Rufscript010.ttf",),
}


def installed_faces(root: Path = FONTS) -> list[Path]:
    """The files of all packages, in the order of the list."""
    faces = []
    for package, patterns in PACKAGES.items():
        for pattern in patterns:
            found = sorted(root.glob(pattern))
            if not found:
                raise MissingDataError(
                    f"{root / pattern} is missing: it is in the Debian package {package}. "
                    f"Install {' '.join(PACKAGES)}, or read the task from a pack."
                )
            faces += found
    return faces
