"""A real haproxy with the shipped configuration, on a folder and a port of its own."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.processes.packages import program
from tests.support.processes.servers import Server, answers

SHIPPED = Path(__file__).parents[3] / "deploy" / "haproxy" / "haproxy.cfg"


class HAProxy(Server):
    """haproxy before two groups of serving processes, at their ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__("haproxy")
        self._file = self.folder / "haproxy.cfg"
        self._file.write_text(adapted(self.port, ports))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [program("haproxy"), "-W", "-db", "-f", str(self._file)]

    def is_answering(self) -> bool:
        return answers(self.port)


def adapted(port: int, server_ports: Sequence[int]) -> str:
    """The shipped file with a test's addresses; each that is replaced must be there once."""
    text = SHIPPED.read_text()
    changes = {"bind :8080": f"bind 127.0.0.1:{port}"}
    for number, each in enumerate(server_ports, 1):
        changes[f"api-{number}:8000"] = f"127.0.0.1:{each}"
    for words, others in changes.items():
        assert text.count(words) == 1, words
        text = text.replace(words, others)
    return text
