"""`make site`: build the site into build/site; a warning fails it.

python -m docs.site [OUT]
"""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs.site.stage import ROOT, stage


def build(out: Path) -> int:
    """Stage the pages beside the site, and build it; the exit code of Sphinx."""
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    stage(source)
    settings = str(Path(__file__).parent)
    failed = sphinx(["-q", "-W", "--keep-going", "-n", "-c", settings, str(source), str(out)])
    if not failed:
        shutil.copy(out / "README.html", out / "index.html")  # what servers of files show first
    return failed


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "site"))
