"""What the service is compared with: servers that do nothing but give a body back.

`python -m benchmarks.echoes {asgi,fastapi} PORT`: uvicorn with the options of the service.
"""

import argparse
from collections.abc import Sequence
from typing import Annotated

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS = [(b"content-type", b"application/octet-stream")]


async def asgi_echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The least that an ASGI server can do for a body."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    headers = [*HEADERS, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class EchoSide(BaseModel):
    """One side of a round."""

    context: Annotated[list[float], Field(min_length=1)]


class EchoRound(BaseModel):
    """The body of `POST /select` as a FastAPI service would usually declare it."""

    experiment: str
    request_id: str | None = None
    source: EchoSide | None = None
    target: EchoSide | None = None


def fastapi_echo() -> FastAPI:
    """One route, one model for the body and the answer."""
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.post("/select")
    async def echo(asked: EchoRound) -> EchoRound:
        return asked

    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("asgi", "fastapi"))
    parser.add_argument("port", type=int)
    options = parser.parse_args(arguments)
    app: ASGIApp = asgi_echo if options.kind == "asgi" else fastapi_echo()
    uvicorn.run(
        app,
        port=options.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main()
