"""Spans for OpenTelemetry, when an endpoint is given; otherwise nothing, not even an import.

Spans say what was done, how long it took and how it ended: never contexts, rewards or keys. The
package's extra `otel` brings what exports them.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span as Span, Tracer

NOTHING: AbstractContextManager[None] = nullcontext()
SERVICE_NAME = "daband"
EXPORT_SECONDS = 5.0
# An exception's message may quote values: a span says no more than that there was one.
SILENT: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}

_tracer: "Tracer | None" = None


def is_on() -> bool:
    """Whether spans go anywhere."""
    return _tracer is not None


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A span around a block, within the one that is open; nothing when traces are off."""
    if _tracer is None:
        return NOTHING
    return _tracer.start_as_current_span(name, attributes=_named(attributes), **SILENT)


def begin_request(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> "Span | None":
    """The span of a request, within the caller's if its headers name one; none when traces are off."""
    if _tracer is None:
        return None
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return _tracer.start_span(
        "request",
        context=extract(texts),
        kind=SpanKind.SERVER,
        attributes=_named({"request_id": request_id}),
        **SILENT,
    )


def within(opened: "Span | None") -> AbstractContextManager[Any]:
    """Meanwhile new spans are within this one."""
    if opened is None:
        return NOTHING
    from opentelemetry.trace import use_span

    return use_span(opened, **SILENT)


def end_request(opened: "Span", method: str, route: str, status: int) -> None:
    """Say how a request ended, and close its span."""
    from opentelemetry.trace import StatusCode

    opened.update_name(f"{method} {route}")
    opened.set_attribute("http.request.method", method)
    opened.set_attribute("http.route", route)
    opened.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        opened.set_status(StatusCode.ERROR)
    opened.end()


def trace_id(opened: "Span") -> str:
    """How a trace is called in log lines."""
    return f"{opened.get_span_context().trace_id:032x}"


@contextmanager
def exporting(endpoint: str | None, role: str) -> Iterator[None]:
    """Send spans to an OTLP/HTTP endpoint meanwhile; what waits in the end is sent, but not for long.

    Without an endpoint nothing is loaded. Other settings are OpenTelemetry's own `OTEL_*` variables.
    """
    global _tracer  # as with logging, one for the process
    if endpoint is None:
        yield
        return
    provider = _provider(endpoint, role)
    _tracer = provider.get_tracer(SERVICE_NAME)
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


def _provider(endpoint: str, role: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = Resource.create({"service.name": f"{SERVICE_NAME}-{role}"})
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider = TracerProvider(resource=about, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _named(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f"daband.{name}": value for name, value in attributes.items()}
