"""Starts and stops a producer, in bounded time and with typed errors."""

from __future__ import annotations

import logging
from typing import Any

from aiokafka import AIOKafkaProducer

from consumer_sdk.adapters.kafka.client import connect, never_create_topics
from consumer_sdk.adapters.kafka.closing import bounded, close_connections

__all__ = ["start_producer", "stop_producer"]

log = logging.getLogger(__name__)


async def start_producer(timeout: float, **options: Any) -> AIOKafkaProducer:
    """A connected producer that writes to all replicas and never creates a topic by accident.

    Raises:
        AdapterError: the servers cannot be reached, or refused.
    """
    producer = AIOKafkaProducer(acks="all", **options)
    never_create_topics(producer.client)
    try:
        await connect(producer.client, timeout)
        await producer.start()
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Sends what it holds, if that is quick, and closes its connections. Never raises."""
    await bounded(producer.stop(), "stopping the producer")
    close_connections(producer.client)
