"""OpenTelemetry spans, if an endpoint is given; otherwise nothing is imported.

Spans contain names, durations and outcomes, never contexts, rewards or keys. The package's extra `otel`
installs the exporter.
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
# An exception's message may quote values, so spans do not record exceptions.
SILENT: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}

_tracer: "Tracer | None" = None


def is_on() -> bool:
    """Whether traces are exported."""
    return _tracer is not None


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A span around a block, as a child of the current span; does nothing if traces are off."""
    if _tracer is None:
        return NOTHING
    return _tracer.start_as_current_span(name, attributes=_named(attributes), **SILENT)


def begin_request(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> "Span | None":
    """The span of a request, as a child of the caller's span if there is one; None if traces are off."""
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
    """Make a span the current one within the block."""
    if opened is None:
        return NOTHING
    from opentelemetry.trace import use_span

    return use_span(opened, **SILENT)


def end_request(opened: "Span", method: str, route: str, status: int) -> None:
    """Record the outcome of a request and end its span."""
    from opentelemetry.trace import StatusCode

    opened.update_name(f"{method} {route}")
    opened.set_attribute("http.request.method", method)
    opened.set_attribute("http.route", route)
    opened.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        opened.set_status(StatusCode.ERROR)
    opened.end()


def trace_id(opened: "Span") -> str:
    """The trace id for log lines."""
    return f"{opened.get_span_context().trace_id:032x}"


@contextmanager
def exporting(endpoint: str | None, role: str) -> Iterator[None]:
    """Export spans to an OTLP/HTTP endpoint within the block; pending spans are sent at its end.

    Without an endpoint nothing is loaded. Other settings are OpenTelemetry's own `OTEL_*` variables.
    """
    global _tracer  # one per process, as with logging
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
