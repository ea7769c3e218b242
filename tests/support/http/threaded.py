"""A service on a real socket in a thread of the test's process, for clients that are no asyncio."""

import asyncio
import socket
import threading
from typing import Any

import uvicorn

from service.app import ServiceApp
from service.http.protocol import guarded_protocol
from tests.support.waiting import PATIENCE_SECONDS

FOREVER = 3600.0


class ThreadedServer(uvicorn.Server):
    """The app behind a real socket and our protocol, in a thread of the test's process."""

    def __init__(self, app: ServiceApp, *, has_fast_path: bool) -> None:
        fast_path = app.fast_path if has_fast_path else None
        protocol = guarded_protocol(FOREVER, app.shedding.early_refusal, fast_path)
        options: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "on"}
        super().__init__(uvicorn.Config(app, http=protocol, ws="none", **options))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.run(self.serve(sockets=[self._listener]))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.should_exit = True
        self._thread.join(PATIENCE_SECONDS)
