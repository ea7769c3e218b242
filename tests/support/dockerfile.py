"""The Dockerfile as data, so that tests run the very steps that an image is built with."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = ROOT / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of it, continuations joined: `RUN`, and what is run."""

    word: str
    rest: str


def stages(text: str | None = None) -> dict[str, list[Instruction]]:
    """The instructions of each stage, by its name; what comes before the first is under ''."""
    found: dict[str, list[Instruction]] = {"": []}
    name = ""
    for each in _instructions(PATH.read_text() if text is None else text):
        if each.word == "FROM":
            name = each.rest.rpartition(" AS ")[2]
            found[name] = []
        found[name].append(each)
    return found


def copied(stage: list[Instruction]) -> list[str]:
    """What a stage takes from the repository."""
    copies = [each.rest.split() for each in stage if each.word == "COPY"]
    return [source for words in copies if words[0][:2] != "--" for source in words[:-1]]


def environment(stage: list[Instruction]) -> dict[str, str]:
    """The variables that a stage sets."""
    return dict(
        pair.split("=", 1) for each in stage if each.word == "ENV" for pair in each.rest.split()
    )


def command(stage: list[Instruction]) -> list[str]:
    """The command of the image, in exec form."""
    (found,) = [each.rest for each in stage if each.word == "CMD"]
    words: list[str] = json.loads(found)
    return words


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n", "\n", "\n".join(lines))
    found: list[Instruction] = []
    for part in re.split(r"\n(?=[A-Z]+ )", joined):
        word, _, rest = part.partition(" ")
        found.append(Instruction(word, " ".join(line.strip() for line in rest.splitlines())))
    return found
