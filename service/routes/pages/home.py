"""The page `/`: what runs here, whether it is ready, and where to go next."""

import base64
import hashlib
from html import escape

from fastapi import APIRouter, Response

from service.errors import ServiceError
from service.routes import ServicesDep
from service.routes.ops import check_ready

STYLE = """
:root { color-scheme: light dark; --faint: #57606a; --line: #d8dee4; --link: #0b62c4; --good: #1a7f37; --bad: #b42318 }
@media (prefers-color-scheme: dark) {
  :root { --faint: #9aa4af; --line: #3a424b; --link: #6cb0ff; --good: #4ac26b; --bad: #ff8a7f }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin-top: 2rem }
.state { border: 1px solid var(--line); border-left: .4rem solid; border-radius: .3rem; padding: .5rem 1rem }
.good { border-left-color: var(--good) } .bad { border-left-color: var(--bad) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .4rem 1.2rem; margin: 0 }
dt, dd { margin: 0 } .faint, dd { color: var(--faint) } a { color: var(--link) }
code { font-size: .9em; overflow-wrap: anywhere }
@media (max-width: 30rem) { dl { display: block } dd { margin-bottom: .6rem } }
"""
LINKS = (
    ("/docs", "API", "every call, to read and to try out"),
    ("/openapi.json", "OpenAPI", "the same for machines"),
    ("/experiments", "Experiments", "all of them, as JSON"),
    ("/metrics", "Metrics", "for Prometheus"),
    ("/readyz", "Readiness", "for a load balancer"),
)
STEPS = (
    ("docs/quickstart.md", "a first experiment in five minutes"),
    ("docs/tutorial.md", "two tables in, a decision for every row out"),
    ("docs/glossary.md", "the terms"),
    (".venv/bin/daband demo", "a simulated experiment against this service, with its score"),
    (".venv/bin/daband --help", "all commands"),
)
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


@router.get("/")
async def home_page(services: ServicesDep) -> Response:
    """The page; it tells nothing of any experiment, so that it needs no key."""
    try:
        await check_ready(services)
    except ServiceError as error:
        state = _state("bad", "Not ready", error.detail)
    else:
        state = _state("good", "Ready", "All tasks run, and the database can be written.")
    return Response(
        _page(state), headers={"Content-Security-Policy": POLICY}, media_type="text/html"
    )


def _state(kind: str, word: str, detail: str) -> str:
    return f'<p class="state {kind}"><strong>{word}.</strong> {escape(detail)}</p>'


def _page(state: str) -> str:
    links = "".join(
        f'<dt><a href="{path}">{name}</a></dt><dd>{what}</dd>' for path, name, what in LINKS
    )
    steps = "".join(f"<dt><code>{name}</code></dt><dd>{what}</dd>" for name, what in STEPS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>daband</title><style>{STYLE}</style></head>
<body>
<h1>daband</h1>
<p>Learn where feedback is cheap, decide where it is costly. This service learns from the rewards of a
source domain and from contexts of both domains. It decides for a target domain without its rewards.</p>
{state}
<h2>Here</h2>
<dl>{links}</dl>
<p class="faint">A service with keys answers experiments and metrics only to a key: <code>daband keys create</code>.</p>
<h2>In the repository</h2>
<dl>{steps}</dl>
</body></html>
"""
