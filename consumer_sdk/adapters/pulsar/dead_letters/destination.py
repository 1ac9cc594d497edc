"""Dead letters in Pulsar topics; `form` has the form of one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import consumer_sdk.adapters.pulsar  # noqa: F401 - says which extra is missing, if one is
from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.outgoing import OutgoingRecord, properties_of
from consumer_sdk.adapters.pulsar.client.producers import Encryption, Producers
from consumer_sdk.adapters.pulsar.client.topics import full_name, topic_of
from consumer_sdk.adapters.pulsar.dead_letters.form import default_topic, record_of
from consumer_sdk.errors import AdapterError, ConfigurationError, ConsumerSdkError
from consumer_sdk.options import NAME, NAMES, check_options, make_options, optional
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.records.dead_letter import own_headers

__all__ = ["PulsarDeadLetters", "PulsarRecords"]


OWN = {
    "topic": optional(NAME),
    "initial_subscription": optional(NAME),
    "encryption_keys": NAMES,
}
"""`PulsarDeadLetters`' own options."""


class PulsarDeadLetters(DeadLetters):
    """Writes dead letters to a Pulsar topic, each acknowledged by the broker.

    One larger than the broker takes is sent in chunks. A letter that is refused all the same, since
    its properties are too large, say, is a RETRY that names the topic and the size.

    Args:
        topic: where to; by default ``<topic>-<subscription>-DLQ``, one for each topic.
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.
        initial_subscription: made on the topic before the first letter. Without any subscription
            (or retention) Pulsar deletes what nobody has read, and with it the topic. None: the
            topic has one, or retention.
        encryption_keys: the names of the keys that letters are encrypted with.
        crypto_key_reader: a ``pulsar.CryptoKeyReader`` that has them.
        connection: any other option of `consumer_sdk.adapters.pulsar.client.connection.Connection`,
            such as ``token``.

    A topic that is missing is made by the broker, if it makes topics.

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
