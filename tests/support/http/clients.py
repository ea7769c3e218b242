"""Clients of servers on this machine."""

import ssl

import httpx

from tests.support.waiting import PATIENCE_SECONDS

# No certificate is loaded, for no call speaks TLS: to load them costs 0.05 s a client.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def client_of(url: str, **headers: str) -> httpx.AsyncClient:
    """A patient client of the server at this URL."""
    return httpx.AsyncClient(
        base_url=url, timeout=PATIENCE_SECONDS, verify=_NO_TLS, headers=headers
    )
