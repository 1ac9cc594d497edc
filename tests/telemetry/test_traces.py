"""Spans around deliveries, in the trace of whoever has sent the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from consumer_sdk import Batch, ConfigurationError, Message, Reject
from consumer_sdk.telemetry import traced
from tests.runtime.bench import Bench, bench

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


class Tracing:
    """A provider that keeps its spans."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


def _append(b: Bench, value: bytes, carried: bytes | None = PARENT) -> None:
    headers = () if carried is None else (("Traceparent", carried), ("h", b"1"))
    b.broker.append("s", value, key=value, headers=headers)


def test_delivery_is_a_consumer_span_of_the_senders_trace() -> None:
    """With what it was; the handler runs inside."""
    tracing = Tracing()
    inside: list[int] = []

    async def handle(_message: Message) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    async def test(b: Bench) -> None:
        _append(b, b"1")
        around = [traced(provider=tracing.provider, system="kafka", group="g")]
        await b.run(b.consumer(), handle, around=around)

    bench(test)
    (span,) = tracing.spans
    assert (span.name, span.kind) == ("process s", SpanKind.CONSUMER)
    assert span.context is not None
    assert inside == [span.context.span_id]
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "s",
        "messaging.destination.partition.id": "0",
        "consumer_sdk.position": "0",
        "consumer_sdk.attempt": 1,
        "consumer_sdk.outcome": "acked",
    }


@pytest.mark.parametrize("size", [None, 5])
def test_carrier_that_fails_costs_no_record(
    size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The span has no parent, and the handler gets what nobody could read a trace of."""
    tracing, seen = Tracing(), []

    async def handle(given: Message | Batch) -> None:
        seen.append(given)

    def carried(message: Message) -> dict[str, str]:
        found: dict[str, str] = json.loads(message.value or b"")
        return found

    async def test(b: Bench) -> None:
        _append(b, b"no JSON")
        around = [traced(provider=tracing.provider, carrier=carried)]
        await b.run(b.consumer(), handle, around=around, batch_size=size)
        assert b.committed() == {"0": 1}

    bench(test)
    (span,) = tracing.spans
    assert (len(seen), span.parent, tuple(span.links)) == (1, None, ())
    assert "s/0 at 0: no trace can be read: JSONDecodeError" in caplog.text


def test_retries_and_dead_letters_carry_the_context_on() -> None:
    """Each delivery is a child of the one before; the letter has the last one's context."""
    tracing = Tracing()

    async def handle(message: Message) -> None:
        if message.attempt == 3:
            raise Reject("no")
        raise OSError("down")

    async def test(b: Bench) -> None:
        _append(b, b"1")
        await b.run(b.consumer(), handle, around=[traced(provider=tracing.provider)])
        (letter,) = b.letters.kept
        last = tracing.spans[-1].context
        assert last is not None
        headers = dict(letter.headers)
        assert headers == {
            "h": b"1",
            "traceparent": f"00-{TRACE}-{last.span_id:016x}-01".encode(),
        }

    bench(test)
    first, second, third = tracing.spans
    assert [s.attributes and s.attributes["consumer_sdk.attempt"] for s in tracing.spans] == [
        1,
        2,
        3,
    ]
    for before, after in ((first, second), (second, third)):
        assert before.context is not None
        assert after.parent is not None
        assert after.parent.span_id == before.context.span_id
    assert (first.attributes or {})["consumer_sdk.outcome"] == "failed"
    assert (first.attributes or {})["error.type"] == "OSError"
    assert first.status.status_code is StatusCode.ERROR
    assert (third.attributes or {})["consumer_sdk.outcome"] == "rejected"


def test_batch_has_links_to_what_its_records_carry() -> None:
    """It has many senders and is nobody's child."""
    tracing = Tracing()

    async def handle(_batch: Batch) -> None:
        await asyncio.sleep(0)

    async def test(b: Bench) -> None:
        for n in range(3):
            _append(b, str(n).encode(), None if n == 1 else PARENT)
        consumer = b.consumer()
        asyncio.get_running_loop().call_later(10, consumer.stop)
        around = [traced(provider=tracing.provider)]
        await consumer.run(handle, batch_size=10, around=around)

    bench(test)
    (span,) = tracing.spans
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE, TRACE]
    assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert span.parent is None


def test_context_may_come_from_the_payload() -> None:
    """Kinesis has no headers."""
    tracing = Tracing()

    def carrier(message: Message) -> dict[str, str] | None:
        found: dict[str, str] | None = json.loads(message.value or b"null")
        return found

    async def test(b: Bench) -> None:
        _append(b, json.dumps({"traceparent": PARENT.decode()}).encode(), None)
        _append(b, b"null", None)
        around = [traced(provider=tracing.provider, carrier=carrier)]
        await b.run(b.consumer(), around=around)

    bench(test)
    traces = {f"{s.context.trace_id:032x}" for s in tracing.spans if s.context is not None}
    assert len(traces) == 2
    assert TRACE in traces


@pytest.mark.parametrize("carried", [b"", b"\xff\xfe", b"00-zz-1-1", b"00-" + b"0" * 32])
def test_wrong_bytes_are_no_context(carried: bytes) -> None:
    """The delivery begins a trace of its own, and fails nothing."""
    tracing = Tracing()

    async def test(b: Bench) -> None:
        _append(b, b"1", carried)
        await b.run(b.consumer(), around=[traced(provider=tracing.provider)])
        assert b.values == ["1"]

    bench(test)
    (span,) = tracing.spans
    assert span.parent is None


def test_span_that_is_not_sampled_leaves_the_headers_alone() -> None:
    """The sender's context goes on as it is."""
    tracing = Tracing(sampler=ALWAYS_OFF)

    async def test(b: Bench) -> None:
        _append(b, b"1")
        await b.run(b.consumer(), around=[traced(provider=tracing.provider)])
        assert dict(b.seen[0].headers)["Traceparent"] == PARENT

    bench(test)
    assert tracing.spans == []


def test_middleware_is_called_from_the_outside_in_also_around_batches() -> None:
    """Each sees what the next one raises, and may settle on another outcome."""
    calls: list[str] = []

    def named(name: str) -> Callable[[Any], Any]:
        def around(
            handler: Callable[[Any], Awaitable[object]],
        ) -> Callable[[Any], Awaitable[object]]:
            async def handle(given: Any) -> None:
                calls.append(name)
                try:
                    await handler(given)
                except OSError:
                    calls.append(f"{name} has seen it")

            return handle

        return around

    async def fail(_given: Any) -> None:
        raise OSError

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(), fail, seconds=5, around=[named("outer"), named("inner")])
        assert b.committed() == {"0": 1}
        consumer = b.consumer("other")
        asyncio.get_running_loop().call_later(5, consumer.stop)
        await consumer.run(fail, batch_size=5, around=[named("batch")])

    bench(test)
    assert calls == ["outer", "inner", "inner has seen it", "batch", "batch has seen it"]


@pytest.mark.parametrize(
    "around, words",
    [
        (traced, "give a list"),
        ([None], "functions that take a handler"),
        ([lambda _handler: None], "must be a function"),
    ],
)
def test_middleware_that_cannot_work_is_refused(around: Any, words: str) -> None:
    """Before a record is fetched."""

    async def test(b: Bench) -> None:
        with pytest.raises(ConfigurationError, match=words):
            await b.consumer().run(b.see, around=around)

    bench(test)
