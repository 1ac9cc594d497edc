"""A FastAPI service that consumes. Its lifespan runs the consumer, and its probes are the consumer's.

python examples/with_fastapi.py --kafka 127.0.0.1:9092 --topic orders --port 8000

- http://127.0.0.1:8000/totals           what this service has added up
- http://127.0.0.1:8000/healthz          and /readyz, /metrics: for Kubernetes, and for Prometheus

It needs the extras ``kafka`` and ``admin``, and the package ``fastapi``. SIGTERM and Ctrl-C end both
the server and the consumer, which finishes what it has in hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from consumer_sdk import Consumer, Message, RetryPolicy, admin
from consumer_sdk.adapters import KafkaAdapter

log = logging.getLogger(__name__)
totals: Counter[str] = Counter()


async def handle(message: Message) -> None:
    """Adds the amount of an order to its customer's total."""
    order = json.loads(message.value or b"")
    print(f"begins {order['customer']}", flush=True)
    await asyncio.sleep(order.get("seconds", 0))  # stands for the work that an order makes
    totals[order["customer"]] += order["amount"]
    print(f"ends {order['customer']}", flush=True)


async def consume(consumer: Consumer) -> None:
    """Runs the consumer. Logs a failure at once, because nobody awaits this before the server ends."""
    try:
        await consumer.run(handle)
    except Exception:
        log.exception("the consumer has failed")
        raise


def make_service(consumer: Consumer) -> FastAPI:
    """The web service; the consumer runs as long as it does."""

    @asynccontextmanager
    async def life(_service: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(consume(consumer))
        yield
        consumer.stop()  # SIGTERM has said so too; the end of a test client says it here
        await running  # until what is in hand is finished and flushed; raises what has failed

    service = FastAPI(lifespan=life)

    @service.get("/totals")
    async def answer() -> dict[str, int]:
        """What this service has added up."""
        return dict(totals)

    service.mount("/", admin.app(consumer, view=False))  # last: it answers what nobody above does
    return service


def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="fastapi"),
        retry=RetryPolicy(max_attempts=5, initial=0.1),
        drain_timeout=20.0,
    )
    uvicorn.run(make_service(consumer), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
