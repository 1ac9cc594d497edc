"""A web service that consumes: probes, metrics, the live page and traces beside its own routes.

python examples/observed.py --kafka 127.0.0.1:9092 --topic orders --port 8000

- http://127.0.0.1:8000/totals           what this service has added up
- http://127.0.0.1:8000/consumer/        the page of its consumer; /consumer/healthz, /consumer/metrics
- the console                            a span for each delivery

It is written for Starlette; with FastAPI only the class of `service` changes. It needs the extras
``kafka``, ``admin`` and ``otel``, and the package ``opentelemetry-sdk``. SIGTERM and Ctrl-C end both
the server and the consumer, which finishes what it has in hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from consumer_sdk import Consumer, Message, RetryPolicy, admin, telemetry
from consumer_sdk.adapters import KafkaAdapter

totals: Counter[str] = Counter()


async def handle(message: Message) -> None:
    """Adds the amount of an order to its customer's total."""
    order = json.loads(message.value or b"")
    totals[order["customer"]] += order["amount"]


async def answer(_request: Request) -> JSONResponse:
    """What this service knows."""
    return JSONResponse(dict(totals))


def make_service(consumer: Consumer) -> Starlette:
    """The web service: the consumer runs while it is up."""
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=_line)))
    tracing = telemetry.traced(provider=spans, system="kafka", group="totals")

    @asynccontextmanager
    async def life(_service: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(consumer.run(handle, around=[tracing]))
        yield
        consumer.stop()
        await running

    shown = Mount("/consumer", admin.app(consumer))  # token=… where others reach the port
    return Starlette(routes=[Route("/totals", answer), shown], lifespan=life)


def _line(span: object) -> str:
    return f"{span.to_json(indent=None)}\n"  # type: ignore[attr-defined]  # a ReadableSpan


def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="totals"),
        retry=RetryPolicy(max_attempts=5, initial=0.1),
    )
    uvicorn.run(make_service(consumer), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
