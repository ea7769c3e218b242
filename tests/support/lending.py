"""What is installed here, for a new environment to see, without the project itself."""

import sys
from pathlib import Path


def lend_packages(folder: Path) -> Path:
    """Fill a new folder with links to the packages of this environment."""
    folder.mkdir()
    here = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for each in here.iterdir():
        is_ours = "daband" in each.name.lower() or each.suffix == ".pth"
        if not is_ours and each.name != "pip":
            (folder / each.name).symlink_to(each)
    return folder
