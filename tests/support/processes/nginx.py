"""A real nginx with the shipped configuration, on a folder and ports of its own."""

import shutil
from pathlib import Path

import psutil

from tests.support.processes.packages import program
from tests.support.processes.servers import Server, answers, free_port

SHIPPED = Path(__file__).parents[3] / "deploy" / "nginx"
# What the container gives it and a test cannot: names, ports, devices, the one /tmp.
LISTEN, UPSTREAM = "listen 8080;", "server api:8000;"


class Nginx(Server):
    """nginx before the service at a port; `changes` replaces words of its configuration.

    Every word that is replaced must be there exactly once: a test cannot drift from what ships.
    """

    def __init__(self, upstream_port: int, listeners: str = "listeners", **changes: str) -> None:
        super().__init__("nginx")
        self.upstream_port = upstream_port
        self.tls_port = free_port()
        self._changes = changes
        shutil.copytree(SHIPPED, self.folder / "conf")
        if listeners != "listeners":
            shutil.rmtree(self.folder / "conf" / "listeners")
            (self.folder / "conf" / listeners).rename(self.folder / "conf" / "listeners")
        self._adapt()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The access log."""
        return (self.folder / "access.log").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "error.log").read_text()

    def processes(self) -> list[psutil.Process]:
        """The master and its workers."""
        assert self._process is not None
        master = psutil.Process(self._process.pid)
        return [master, *master.children()]

    def command(self) -> list[str]:
        configuration = str(self.folder / "conf" / "nginx.conf")
        return [program("nginx", package="nginx-light"), "-c", configuration, "-g", "daemon off;"]

    def is_answering(self) -> bool:
        return answers(self.port)

    def _adapt(self) -> None:
        main = self.folder / "conf" / "nginx.conf"
        text = _replaced(main.read_text(), UPSTREAM, f"server 127.0.0.1:{self.upstream_port};")
        for words, others in self._changes.items():
            shipped, _, changed = others.partition(" -> ")
            text = _replaced(text, f"{words} {shipped};", f"{words} {changed};")
        text = text.replace(" /tmp/", f" {self.folder}/")
        text = _replaced(text, "/dev/stderr", str(self.folder / "error.log"))
        text = _replaced(text, "/dev/stdout", str(self.folder / "access.log"))
        main.write_text(text)
        for listener in (self.folder / "conf" / "listeners").iterdir():
            adapted = _replaced(listener.read_text(), LISTEN, f"listen 127.0.0.1:{self.port};")
            adapted = adapted.replace("listen 8443", f"listen 127.0.0.1:{self.tls_port}")
            listener.write_text(adapted.replace("/run/secrets/", f"{self.folder}/"))


def _replaced(text: str, words: str, others: str) -> str:
    assert text.count(words) == 1, f"{words} is there {text.count(words)} times"
    return text.replace(words, others)
