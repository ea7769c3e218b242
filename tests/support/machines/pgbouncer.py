"""A real PgBouncer before a Postgres, on a folder and a port of its own."""

from urllib.parse import urlsplit, urlunsplit

from tests.support.processes.packages import program
from tests.support.processes.servers import Server, answers

SESSIONS = 4  # of Postgres, far fewer than there are connections: transactions change between them


class PgBouncer(Server):
    """PgBouncer in transaction pooling before a server's databases; `settings` are lines of its file."""

    def __init__(self, postgres_url: str, **settings: str) -> None:
        super().__init__("pgbouncer")
        self._behind = urlsplit(postgres_url)
        self._file = self.folder / "pgbouncer.ini"
        given = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": str(SESSIONS),
            "max_client_conn": "500",
            **settings,
        }
        lines = "\n".join(f"{name} = {value}" for name, value in given.items())
        place = (
            f"host={self._behind.hostname} port={self._behind.port} user={self._behind.username}"
        )
        if self._behind.password:
            place += f" password={self._behind.password}"
        self._file.write_text(f"[databases]\n* = {place}\n[pgbouncer]\n{lines}\n")

    @property
    def url(self) -> str:
        """Where a client finds the database of the server behind."""
        return self.before(urlunsplit(self._behind))

    def before(self, postgres_url: str) -> str:
        """The URL of a database of the server behind, through this pooler."""
        parts = urlsplit(postgres_url)
        return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}"))

    def command(self) -> list[str]:
        return [program("pgbouncer"), str(self._file)]

    def is_answering(self) -> bool:
        return answers(self.port)
