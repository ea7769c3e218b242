"""Calls that are not measured: they are made again until the service takes them."""

import httpx

from daband_client import Client, Retries
from loadtest.service_under_test import ServiceUnderTest

RETRIES = Retries(attempts=80)  # some minutes
CALL_SECONDS = 60.0


def patient_client(service: ServiceUnderTest) -> Client:
    """A client for a service that may be busy."""
    return Client(
        service.url,
        RETRIES,
        api_key="",
        headers=service.headers,
        timeout_seconds=CALL_SECONDS,
        # The surroundings may name a proxy, which is not to be measured either.
        transport=httpx.HTTPTransport(),
    )
