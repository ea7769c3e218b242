"""The page `/docs`: Swagger UI over the OpenAPI description, with all its parts from this process."""

from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.staticfiles import StaticFiles

PAGE = "/docs"
ASSETS = "/docs/assets"


def add_docs_page(app: FastAPI) -> None:
    """Serve the page; it works where nothing else can be reached."""
    app.mount(ASSETS, StaticFiles(directory=str(files("fastapi_swagger") / "resources")))

    @app.get(PAGE, include_in_schema=False)
    async def docs_page() -> Response:
        return get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=app.title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        )
