"""Fields of a Pulsar message beside key, value, headers and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PulsarDetails", "details_of", "event_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarDetails:
    """The `Message.details` of a Pulsar record.

    Attributes:
        publish_time: milliseconds since the epoch.
        event_time: milliseconds since the epoch; None if the producer gave none.
        producer_name: unique in its topic.
        schema_version: a number that the broker counts up from 0; None for a record without a schema.
        is_encrypted: the message could not be decrypted, and the value is what the broker stores.
        redelivery_count: the broker's own count, which is lost with each connection.
            `Message.attempt` is the consumer's.
    """

    publish_time: int
    event_time: int | None
    producer_name: str
    schema_version: int | None
    is_encrypted: bool
    redelivery_count: int


def event_time(timestamp: int | None, details: object) -> int | None:
    """A record's, without the time of publishing that stands for a missing one."""
    return details.event_time if isinstance(details, PulsarDetails) else timestamp


def details_of(raw: Any) -> PulsarDetails:
    """Of the client's message."""
    version, encryption = raw.int_schema_version(), raw.encryption_context()
    return PulsarDetails(
        publish_time=raw.publish_timestamp(),
        event_time=raw.event_timestamp() or None,
        producer_name=raw.producer_name(),
        schema_version=None if version < 0 else version,
        is_encrypted=encryption is not None and encryption.is_decryption_failed(),
        redelivery_count=raw.redelivery_count(),
    )
