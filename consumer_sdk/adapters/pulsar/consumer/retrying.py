"""Writes records to the retry topic (``reconsume later``), from which the broker sends them again.

A copy of the record waits in the retry topic, and the record itself is acked. So the copy can wait
for hours without counting as unacked at the broker, and another consumer may get it. A retry in
this process can do neither.
"""

from __future__ import annotations

from consumer_sdk.adapters.pulsar.client.outgoing import (
    TRIES,
    OutgoingRecord,
    origin_properties,
    properties_of,
    schema_of,
    tries_of,
)
from consumer_sdk.adapters.pulsar.client.producers import Encryption, Producers
from consumer_sdk.adapters.pulsar.client.topics import origin_of, retry_topic
from consumer_sdk.adapters.pulsar.details import event_time
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.checkpoints.positions import encode_message_id
from consumer_sdk.records import Message
from consumer_sdk.trackers import Reject

__all__ = ["RetryTopics"]

DELAY = "DELAY_TIME"


class RetryTopics:
    """Writes to a subscription's retry topics."""

    def __init__(self, options: PulsarOptions) -> None:
        keys = options.encryption_keys
        encryption = Encryption(options.crypto_key_reader, keys) if keys else None
        self._producers = Producers(options.connection, encryption=encryption)
        self._subscription = options.subscription
        self._limit = options.retry_limit

    async def send(self, message: Message, delay: float) -> None:
        """Returns when the broker has stored the record's copy.

        Raises:
            Reject: the record has been through a retry topic as often as it may.
            AdapterError: the broker refuses, or does not answer.
        """
        own = properties_of(message.headers)
        tries = tries_of(own) + 1
        if tries > self._limit:
            raise Reject(f"it was to be consumed later {self._limit} times before")
        stream, position = message.partition.stream, encode_message_id(message.position)
        told = origin_properties(own, message.partition, position, self._subscription)
        told |= {TRIES: str(tries), DELAY: str(round(delay * 1000))}
        record = OutgoingRecord(
            key=message.key,
            value=message.value,
            properties=own | told,
            ordering_key=message.ordering_key,
            timestamp=event_time(message.timestamp, message.details),
            delay=delay,
            schema=schema_of(stream, message.details),
        )
        topic = retry_topic(origin_of(stream, self._subscription), self._subscription)
        await self._producers.send(topic, record)

    async def aclose(self) -> None:
        """Idempotent."""
        await self._producers.aclose()
