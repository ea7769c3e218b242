"""URLs with several hosts: `scheme://user:password@host:port,host,[::1]:port/path?query`."""

from typing import NamedTuple
from urllib.parse import urlsplit


class Address(NamedTuple):
    """A host, without the brackets of IPv6, and a port."""

    host: str
    port: int


class SeveralHosts(NamedTuple):
    """The parts of such a URL; Python's `urlsplit` refuses brackets behind another host."""

    scheme: str
    account: str
    hosts: str
    path: str
    query: str

    def addresses(self, port: int) -> list[Address]:
        """Each host with its port, or with `port` where it names none."""
        return [_address(host, port) for host in self.hosts.split(",")]


def split_hosts(url: str) -> SeveralHosts:
    """The parts of a URL that may name several hosts."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    place, slash, path = rest.partition("/")
    account, _, hosts = place.rpartition("@")
    return SeveralHosts(scheme, account, hosts, slash + path, query)


def _address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    return Address(parts.hostname or "", parts.port or port)
