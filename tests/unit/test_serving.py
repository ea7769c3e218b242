"""The server process around the app."""

import gc

import uvicorn

from service.readiness import Readiness
from service.serving import DrainingServer, listen


async def nothing(scope, receive, send):
    """An app that is never asked."""


async def test_what_start_up_made_is_not_looked_through_again():
    config = uvicorn.Config(nothing, lifespan="off", log_config=None)
    config.load()
    listener = listen("127.0.0.1", 0)
    server = DrainingServer(config, Readiness(), 0.0, lambda: None)
    server.lifespan = config.lifespan_class(config)
    frozen_before = gc.get_freeze_count()
    try:
        await server.startup([listener])
        assert server.started
        assert gc.get_freeze_count() > frozen_before + 10_000
    finally:
        gc.unfreeze()
        await server.shutdown([listener])
