"""Ways to see what a consumer does; each function is one."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry

from consumer_sdk import Consumer, Hooks, Message, admin, telemetry

Handler = Callable[[Message], Awaitable[None]]


class Outcomes(Hooks):
    """Collects what became of records; override what you want to be told."""

    def __init__(self) -> None:
        self.finished: list[bytes | None] = []
        self.alarms: list[str] = []

    def settled(self, message: Message) -> None:
        self.finished.append(message.key)

    def dead_lettered(self, message: Message, error: BaseException | str) -> None:
        self.alarms.append(f"{message.position}: {error}")


def stuck(consumer: Consumer, seconds: float) -> list[str]:
    """Partitions whose position has not moved for so long."""
    return [
        f"{each.partition}: {each.pinned.position} is {each.pinned.state}"
        for each in consumer.snapshot().partitions
        if each.pinned is not None and each.pinned.age > seconds
    ]


def live(consumer: Consumer) -> int:
    """For a liveness probe: 503 has the process restarted."""
    return 200 if consumer.health().live else 503


def ready(consumer: Consumer) -> int:
    """For a readiness probe."""
    return 200 if consumer.health().ready else 503


async def seen(consumer: Consumer, handle: Callable[[Message], Awaitable[None]]) -> None:
    """Until it ends, http://127.0.0.1:9464/ shows the consumer."""
    async with admin.serve(consumer, address="127.0.0.1:9464", actions=True):
        await consumer.run(handle)


async def move_the_database(consumer: Consumer, move: Callable[[], Awaitable[None]]) -> None:
    """Nothing new is fetched meanwhile."""
    consumer.pause(reason="the database is moved")
    try:
        await move()
    finally:
        consumer.resume()


def expose(consumer: Consumer) -> CollectorRegistry:
    """For prometheus_client's start_http_server(9000, registry=…), or any other way out."""
    registry = CollectorRegistry()
    registry.register(telemetry.collector(consumer))
    return registry


async def trace_all(consumer: Consumer, handle: Callable[[Message], Awaitable[None]]) -> None:
    """A span of kind CONSUMER around each delivery."""
    await consumer.run(handle, around=[telemetry.traced(system="kafka", group="billing")])


def carried(message: Message) -> dict[str, str] | None:
    """What the sender wrote into the payload."""
    payload: dict[str, dict[str, str]] = json.loads(message.value or b"{}")
    return payload.get("trace")


tracing = telemetry.traced(system="aws_kinesis", carrier=carried)


def limited(seconds: float) -> Callable[[Handler], Handler]:
    """No delivery takes longer."""

    def around(handler: Handler) -> Handler:
        async def handle(message: Message) -> None:
            async with asyncio.timeout(seconds):
                await handler(message)

        return handle

    return around


def log_json() -> None:
    """Each line is a JSON object."""
    output = logging.StreamHandler()
    output.setFormatter(telemetry.JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[output])


def add_message(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """A processor of structlog."""
    return {**telemetry.message_fields(), **event}
