"""Spans: one for each delivery, in the trace of the record's producer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Batch, Headers, Message, Partition
from consumer_sdk.telemetry.model import ATTRIBUTES, SCHEMA_URL
from consumer_sdk.trackers import Reject, Retry

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
except ImportError as _error:
    raise MissingExtraError("opentelemetry", "otel") from _error

__all__ = ["traced"]

log = logging.getLogger(__name__)

Given = TypeVar("Given", Message, Batch)
Carrier = Callable[[Message], Mapping[str, str] | None]
MOST_LINKS = 128
"""Links of a span that SDKs keep by default."""
STREAM, PARTITION = ATTRIBUTES["stream"], ATTRIBUTES["partition"]


def traced(
    *,
    provider: TracerProvider | None = None,
    carrier: Carrier | None = None,
    system: str | None = None,
    group: str | None = None,
) -> Callable[[Callable[[Any], Awaitable[object]]], Callable[[Any], Awaitable[object]]]:
    """Makes a span of kind CONSUMER around each delivery: ``run(handle, around=[traced()])``.

    It is named ``process {stream}``, and has stream, partition, position, attempt and outcome
    (``acked``, ``retry``, ``rejected``, ``failed``) as attributes. Its parent is the record's
    ``traceparent``, in its headers or properties. The span of a batch has links to those of its
    records. After that the message's headers carry the span, so the record's retries, its dead
    letter, and what a handler sends with these headers belong to the trace.

    Args:
        provider: the tracer provider; the global one if None.
        carrier: finds the context of a message that has no headers (Kinesis): a function of the
            payload, which returns None if there is none. Its errors are logged, and the span has no
            parent then.
        system: ``messaging.system``, such as ``"kafka"``.
        group: the consumer group.

    Raises:
        MissingExtraError: the extra ``otel`` is not installed.
    """
    tracer = (provider or trace.get_tracer_provider()).get_tracer(
        "consumer_sdk", schema_url=SCHEMA_URL
    )
    given = {ATTRIBUTES["system"]: system, ATTRIBUTES["group"]: group}
    shared = {name: text for name, text in given.items() if text is not None}
    spans = _Spans(tracer, carrier or _headers, shared)
    return spans.around


class _Spans:
    def __init__(self, tracer: Tracer, carrier: Carrier, shared: Mapping[str, str]) -> None:
        self._tracer = tracer
        self._carrier = carrier
        self._of: dict[Partition, tuple[str, dict[str, str]]] = {}
        self._shared = {
            **shared,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
        }

    def around(
        self, handler: Callable[[Any], Awaitable[object]]
    ) -> Callable[[Any], Awaitable[object]]:
        @wraps(handler)
        async def handle(given: Message | Batch) -> object:
            span = self._batch(given) if isinstance(given, Batch) else self._message(given)
            token = contexts.attach(trace.set_span_in_context(span))
            try:
                made = await handler(given)
            except BaseException as error:
                _failed(span, error)
                raise
            else:
                if span.is_recording():
                    span.set_attribute("consumer_sdk.outcome", "acked")
                return made
            finally:
                contexts.detach(token)
                span.end()

        return handle

    def _message(self, message: Message) -> Span:
        where = message.assignment.partition
        name, attributes = self._of.get(where) or self._describe(where)
        span = self._tracer.start_span(name, self._parent(message), SpanKind.CONSUMER, attributes)
        if span.is_recording():
            span.set_attribute("consumer_sdk.position", str(message.position))
            span.set_attribute("consumer_sdk.attempt", message.attempt)
            message.headers = _carrying(message.headers, span)
        return span

    def _describe(self, where: Partition) -> tuple[str, dict[str, str]]:
        attributes = {**self._shared, STREAM: where.stream, PARTITION: where.id}
        self._of[where] = described = f"process {where.stream}", attributes
        return described

    def _batch(self, batch: Batch) -> Span:
        streams = {message.stream for message in batch}
        stream = next(iter(streams)) if len(streams) == 1 else "several streams"
        carried = (trace.get_current_span(self._parent(m)) for m in batch[:MOST_LINKS])
        found = (span.get_span_context() for span in carried)
        count = {"messaging.batch.message_count": len(batch)}
        return self._tracer.start_span(
            f"process {stream}",
            kind=SpanKind.CONSUMER,
            attributes={**self._shared, STREAM: stream, **count},
            links=[Link(context) for context in found if context.is_valid],
        )

    def _parent(self, message: Message) -> Context:
        """The context that the record carries, or none if it cannot be read: the handler gets the record anyway."""
        try:
            carried = self._carrier(message)
            return propagate.extract(carried, ROOT) if carried else ROOT
        except Exception as error:  # noqa: BLE001 - of user code, about bytes that anybody may have sent
            where = message.partition, message.position
            log.warning("%s at %s: no trace can be read: %r", *where, error, extra=REPEATS)
            return ROOT


ROOT = Context()
"""A delivery is no child of whatever runs the consumer."""


def _headers(message: Message) -> Mapping[str, str] | None:
    if not message.headers:
        return None
    return {
        name.lower(): value.decode("utf-8", "replace")
        for name, value in message.headers
        if value is not None
    }


def _carrying(headers: Headers, span: Span) -> Headers:
    """The headers, with this span in place of the producer's."""
    mine: dict[str, str] = {}
    propagate.inject(mine, trace.set_span_in_context(span))
    kept: Sequence[tuple[str, bytes | None]]
    kept = [pair for pair in headers if pair[0].lower() not in mine]
    return [*kept, *((name, value.encode()) for name, value in mine.items())]


def _failed(span: Span, error: BaseException) -> None:
    if not span.is_recording():
        return
    outcome = {Retry: "retry", Reject: "rejected"}.get(type(error), "failed")
    span.set_attribute("consumer_sdk.outcome", outcome)
    if outcome != "retry":
        span.set_attribute(ATTRIBUTES["error_type"], type(error).__qualname__)
        span.set_status(StatusCode.ERROR, str(error))
        span.record_exception(error)
