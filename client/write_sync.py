"""Writes the sync client, `client.py`, out of the async one: `python client/write_sync.py`."""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "daband_client"
SOURCE, RESULT = FOLDER / "async_client.py", FOLDER / "client.py"
HEAD = (
    '"""The client without asyncio. Made of `async_client.py` by `write_sync.py`: edit that one."""'
)
REPLACED = {
    r"\basync (def|with)\b": r"\1",
    r"\bawait ": "",
    r"\bAwaitable\[None\]": "None",
    r"\bAwaitable, ": "",
    r"\bAsync(Client|BaseTransport|FileBody)\b": r"\1",
    r"\basyncio\b": "time",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\baclose\b": "close",
}


def sync_client() -> str:
    """The text of `client.py`."""
    text = SOURCE.read_text()
    for pattern, replacement in REPLACED.items():
        text = re.sub(pattern, replacement, text)
    text = HEAD + text[text.index("\n") :]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(RESULT), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    RESULT.write_text(sync_client())
