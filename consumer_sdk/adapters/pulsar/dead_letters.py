"""Writes dead letters to Pulsar topics.

A dead letter is the record unchanged (key, value, properties and event time), with the properties that Pulsar's own
clients add, and with the error:

======================  ======================================================================
``REAL_TOPIC``          the topic that the record came from, without the partition; of a record
                        that came through a retry topic, its first topic. The next two likewise
``REAL_SUBSCRIPTION``   the subscription (or group) that gave the record up
``ORIGIN_MESSAGE_ID``   the record's message id, as Java's client writes it: the same letter,
                        written twice after a crash, has the same
``RECONSUMETIMES``      how often it was delivered again, through a retry topic or not
``dlq.stream``          the stream of the delivery that failed,
``dlq.partition``       its partition,
``dlq.position``        and its position there
``dlq.error``           the error; cut to 8 KiB
``dlq.error-type``      the exception's qualified name, or ``rejected``
``dlq.attempts``        deliveries that failed
``dlq.failed-at``       seconds since the epoch
======================  ======================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.outgoing import (
    TRIES,
    OutgoingRecord,
    origin_properties,
    properties_of,
    schema_of,
    tries_of,
)
from consumer_sdk.adapters.pulsar.client.producers import Encryption, Producers
from consumer_sdk.adapters.pulsar.client.topics import dead_letter_topic, full_name, topic_of
from consumer_sdk.adapters.pulsar.details import event_time
from consumer_sdk.errors import AdapterError, ConfigurationError, ConsumerSdkError
from consumer_sdk.options import NAME, NAMES, check_options, make_options, optional
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.records.dead_letter import PREFIX, own_headers

__all__ = ["PulsarDeadLetters", "PulsarRecords", "default_topic", "record_of"]

OWN = {
    "topic": optional(NAME),
    "initial_subscription": optional(NAME),
    "encryption_keys": NAMES,
}
"""`PulsarDeadLetters`' own options."""


# -- the form of a letter -----------------------------------------------------------------

LONGEST_ERROR = 8192
"""Characters of an error's text."""


def default_topic(letter: DeadLetter) -> str:
    """``<topic>-<subscription>-DLQ``, in full."""
    stream = letter.partition.stream
    legal = stream if "://" in stream else stream.replace("/", "_")  # of another broker
    return dead_letter_topic(legal, letter.group)


def record_of(letter: DeadLetter) -> OutgoingRecord:
    """What is written for a letter."""
    return OutgoingRecord(
        key=letter.key,
        value=letter.value,
        properties=_properties(letter),
        ordering_key=letter.ordering_key,
        timestamp=event_time(letter.timestamp, letter.details),
        schema=schema_of(letter.partition.stream, letter.details),
    )


def _properties(letter: DeadLetter) -> dict[str, str]:
    own = properties_of(letter.headers)
    kept = {name: value for name, value in own.items() if not name.startswith(PREFIX)}
    origin = origin_properties(own, letter.partition, letter.position, letter.group)
    tries = {TRIES: str(tries_of(own) + max(letter.attempts - 1, 0))}
    return kept | origin | tries | _why(letter)


def _why(letter: DeadLetter) -> dict[str, str]:
    added = {
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "error": letter.error[:LONGEST_ERROR],
        "error-type": letter.error_type,
        "attempts": letter.attempts,
        "failed-at": letter.failed_at,
    }
    return {PREFIX + name: str(value) for name, value in added.items()}


# -- the destinations --------------------------------------------------------------------


class PulsarDeadLetters(DeadLetters):
    """Writes dead letters to a Pulsar topic, each acknowledged by the broker.

    A letter that is larger than the broker accepts is sent in chunks. If the broker still refuses
    it, for example because its properties are too large, the outcome is a RETRY that names the
    topic and the size.

    Args:
        topic: where to; by default ``<topic>-<subscription>-DLQ``, one for each topic.
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.
        initial_subscription: made on the topic before the first letter. Without any subscription
            (or retention) Pulsar deletes unread letters, and with them the topic. None: the topic
            has a subscription, or retention.
        encryption_keys: the names of the keys that letters are encrypted with.
        crypto_key_reader: a ``pulsar.CryptoKeyReader`` that has them.
        connection: any other option of `consumer_sdk.adapters.pulsar.client.connection.Connection`,
            such as ``token``.

    A broker that creates topics automatically creates a missing one.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    __slots__ = ("_lock", "_producers", "topic")

    def __init__(
        self,
        topic: str | None = None,
        *,
        service_url: str,
        initial_subscription: str | None = "dead-letters",
        encryption_keys: Sequence[str] = (),
        crypto_key_reader: Any = None,
        **connection: Any,
    ) -> None:
        check_options(locals(), OWN)
        if topic is not None and (not topic or topic != topic.strip()):
            raise ConfigurationError(f"topic={topic!r}: give the name of a topic")
        if bool(encryption_keys) != (crypto_key_reader is not None):
            raise ConfigurationError("give both of encryption_keys and crypto_key_reader, or none")
        self.topic = None if topic is None else full_name(topic)
        self._producers = Producers(
            make_options(Connection, {"service_url": service_url, **connection}),
            subscription=initial_subscription,
            encryption=Encryption(crypto_key_reader, encryption_keys) if encryption_keys else None,
        )
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PulsarDeadLetters({self.topic!r})"

    async def open(self) -> None:
        """Connects when the first letter comes; there is nothing to look at before."""

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Writes them; one outcome for each, in order."""
        async with self._lock:
            return await asyncio.gather(*map(self._send, letters))

    async def aclose(self) -> None:
        """Idempotent; waits for what is being sent, within bounds."""
        async with self._lock:
            await self._producers.aclose()

    _default_topic = staticmethod(default_topic)
    _record = staticmethod(record_of)

    def _partition(self, letter: DeadLetter) -> str | None:  # noqa: ARG002 - the key's
        return None

    async def _send(self, letter: DeadLetter) -> Outcome:
        topic = self.topic or self._default_topic(letter)
        try:
            await self._producers.send(
                topic, self._record(letter), partition=self._partition(letter)
            )
        except ConsumerSdkError as error:
            return Outcome.retry(_named(error, letter))
        except Exception as error:  # noqa: BLE001 - it is this letter's outcome
            return Outcome.retry(AdapterError(f"writing a dead letter to {topic}: {error!r}"))
        return Outcome.durable()


class PulsarRecords(PulsarDeadLetters):
    """Writes the records of letters as they were, by default to the partitions that they came from."""

    __slots__ = ()

    @staticmethod
    def _default_topic(letter: DeadLetter) -> str:
        return letter.partition.stream

    def _partition(self, letter: DeadLetter) -> str | None:
        return topic_of(letter.partition) if self.topic is None else None

    @staticmethod
    def _record(letter: DeadLetter) -> OutgoingRecord:
        own = replace(letter, headers=own_headers(letter.headers))
        return replace(record_of(own), properties=properties_of(own.headers))


def _named(error: ConsumerSdkError, letter: DeadLetter) -> ConsumerSdkError:
    """The error with what tells the letter apart."""
    size = len(letter.value or b"") + sum(len(n) + len(v or b"") for n, v in letter.headers)
    place = f"{letter.partition} at {letter.position}, {size:,} bytes with its headers"
    return type(error)(f"dead letter of {place}: {error}")
