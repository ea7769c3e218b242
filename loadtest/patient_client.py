"""Calls that are not measured: they are made again until the service takes them."""

import time
from typing import Any

import httpx

from loadtest.service_under_test import ServiceUnderTest

PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 0.1
CALL_SECONDS = 60.0
UNAVAILABLE = 503


class PatientClient:
    """Asks a service that may be busy."""

    def __init__(self, service: ServiceUnderTest) -> None:
        # The surroundings may name a proxy, which is not to be measured either.
        self._http = httpx.Client(
            base_url=service.url,
            headers=dict(service.headers),
            timeout=CALL_SECONDS,
            trust_env=False,
        )

    def __enter__(self) -> "PatientClient":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str) -> dict[str, Any]:
        """What the service answers; raises when it refuses for another reason than being busy."""
        return self._asked("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The same for something that may safely be sent twice."""
        return self._asked("POST", path, body)

    def create_experiment(self, creation: dict[str, Any]) -> None:
        """Create an experiment; an earlier attempt whose answer was lost counts, too."""
        try:
            self.post("/experiments", creation)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer = self._http.request(method, path, json=body)
        while answer.status_code == UNAVAILABLE and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            answer = self._http.request(method, path, json=body)
        return dict(answer.raise_for_status().json())
