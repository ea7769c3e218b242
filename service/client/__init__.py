"""The client of the HTTP API."""

from service.client.calls import ProblemError, Round
from service.client.client import DEFAULT_URL, AsyncClient, Client, Retries

__all__ = ["DEFAULT_URL", "AsyncClient", "Client", "ProblemError", "Retries", "Round"]
