"""The page `/docs`: Swagger UI for the OpenAPI description, served without external resources."""

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.staticfiles import StaticFiles

PAGE = "/docs"
ASSETS = "/docs/assets"


def add_docs_page(app: FastAPI) -> None:
    """Serve the page and its assets; it works without internet access."""
    app.mount(ASSETS, StaticFiles(directory=str(files("fastapi_swagger") / "resources")))

    page = bytes(
        get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=app.title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        ).body
    )
    headers = {"Content-Security-Policy": _policy(page)}

    @app.get(PAGE, include_in_schema=False)
    async def docs_page() -> Response:
        return Response(page, headers=headers, media_type="text/html")


def _policy(page: bytes) -> str:
    """The content security policy: resources of this process, and the page's own inline script."""
    inside = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(each).digest()).decode() for each in inside]
    scripts = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
