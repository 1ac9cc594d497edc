"""A producer of the client's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pulsar

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarEndpoint

__all__ = ["producing"]


@contextmanager
def producing(server: PulsarEndpoint, topic: str, **options: Any) -> Iterator[Any]:
    """A producer of Pulsar's own client."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=logger)
    try:
        yield client.create_producer(topic, **options)
    finally:
        client.close()
