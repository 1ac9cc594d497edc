"""Starts and stops a producer, in bounded time and with typed errors."""

from __future__ import annotations

import logging
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.client import adopt, connect
from consumer_sdk.adapters.kafka.client.closing import bounded, close_connections
from consumer_sdk.adapters.kafka.client.faults import translate

__all__ = ["start_producer", "stop_producer"]

log = logging.getLogger(__name__)


async def start_producer(timeout: float, **options: Any) -> AIOKafkaProducer:
    """A connected producer that never creates a topic by accident.

    Args:
        timeout: seconds to wait for a connection.
        options: of the client; it writes to all replicas where ``acks`` says nothing else.

    Raises:
        AdapterError: the servers cannot be reached, or refused.
    """
    producer = AIOKafkaProducer(**{"acks": "all", **options})
    adopt(producer.client)
    try:
        await connect(producer.client, timeout)
        await producer.start()
    except KafkaError as error:  # an idempotent producer is refused its id
        await stop_producer(producer)
        raise translate(error, "starting a producer") from error
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Sends what it holds, if that is quick, and closes its connections. Never raises."""
    await bounded(producer.stop(), "stopping the producer")
    close_connections(producer.client)
