"""Dead letters as records of a Kafka topic.

A dead letter has the record's key, value and headers, and these headers in addition, all of them UTF-8 text:

======================  ======================================================================
``dlq.stream``          the topic (or Kinesis stream, Pulsar topic) it came from
``dlq.partition``       the partition there
``dlq.position``        the position there
``dlq.timestamp``       the record's own timestamp, milliseconds since the epoch; if it had one
``dlq.group``           the group that gave it up
``dlq.error``           what went wrong; cut to 8 KiB
``dlq.error-type``      the exception's qualified name, or ``rejected``
``dlq.attempts``        deliveries that failed
``dlq.failed-at``       seconds since the epoch
======================  ======================================================================

The record's own timestamp is in a header. As the timestamp of the dead letter, it would make the topic's retention
delete the letter of an old record at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.protocol.admin import CreateTopicsRequest

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.options import (
    check_client_options,
    client_kinds,
    connection_options,
    read_servers,
)
from consumer_sdk.adapters.kafka.client.producers import start_producer, stop_producer
from consumer_sdk.adapters.kafka.client.topics import Topic, await_topics, describe_topics
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.options import FLAG, NAME, SECONDS, OptionType, check_options, optional
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.records.dead_letter import PREFIX, own_headers
from consumer_sdk.records.outputs import Output

__all__ = ["KafkaDeadLetters", "KafkaRecords", "letter_headers"]

log = logging.getLogger(__name__)

ALREADY_EXISTS = 36
CREATED = {
    "retention.ms": "-1",  # until somebody has looked at them
    "max.message.bytes": str(2**31 - 1),  # whatever the origin allows, and its headers
}
PROPAGATION = 5.0
"""Seconds that a new topic may take until it is seen."""
OURS = {
    "acks": "every dead letter is written to all replicas",
    "enable_idempotence": "one refused letter would make all later ones out of order",
    "transactional_id": "dead letters are written without a transaction",
    "key_serializer": "dead letters are bytes",
    "value_serializer": "dead letters are bytes",
}
"""Client options that are set here → why."""

OWN: Mapping[str, OptionType] = {
    "topic": optional(NAME),
    "creates_topics": FLAG,
    "connect_timeout": SECONDS,
}
"""`KafkaDeadLetters`' own options."""
KINDS = {**client_kinds(AIOKafkaProducer.__init__), **OWN}
"""The same, with the client's."""
LONGEST_ERROR = 8192
LONGEST_TOPIC = 249


# -- the form of a letter -----------------------------------------------------------------------


def letter_topic(letter: DeadLetter) -> str:
    """``<stream>-<group>-DLQ``, as Kafka accepts it."""
    names = [letter.partition.stream, letter.group, "DLQ"]
    return legal_topic("-".join(name for name in names if name))


def legal_topic(name: str) -> str:
    """A topic name that Kafka accepts."""
    found = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if len(found) > LONGEST_TOPIC:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        found = f"{found[: LONGEST_TOPIC - 17]}-{digest}"
    return found


def letter_headers(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without those of an earlier dead letter, and why and where."""
    added = {
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "timestamp": letter.timestamp,
        "group": letter.group,
        "error": letter.error[:LONGEST_ERROR],
        "error-type": letter.error_type,
        "attempts": letter.attempts,
        "failed-at": letter.failed_at,
    }
    kept = [(name, value) for name, value in letter.headers if not name.startswith(PREFIX)]
    return kept + [
        (PREFIX + name, str(value).encode()) for name, value in added.items() if value is not None
    ]


def letter_partition(topic: Topic, letter: DeadLetter) -> int | None:
    """The origin's number where the topic has it, else by key."""
    number = letter.partition.id
    return int(number) if number.isdigit() and int(number) in topic.partitions else None


# -- where letters go ---------------------------------------------------------------------------


class KafkaDeadLetters(DeadLetters):
    """Writes dead letters to a Kafka topic, acknowledged by all replicas.

    Args:
        topic: the topic; by default ``<stream>-<group>-DLQ``, one for each stream.
        bootstrap_servers: ``"host:port"``, several with commas or in a sequence.
        creates_topics: a missing topic is created at the first dead letter, with the origin's
            partitions and replicas and without a retention limit. If False, it is an error.
        connect_timeout: seconds to wait for the servers, which may be restarting when it is opened.
        options: any other option of ``AIOKafkaProducer``, such as ``security_protocol``.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    __slots__ = (
        "_connect_timeout",
        "_creates",
        "_known",
        "_lock",
        "_naming",
        "_options",
        "_producer",
        "topic",
    )

    def __init__(
        self,
        topic: str | None = None,
        *,
        bootstrap_servers: str | Sequence[str],
        creates_topics: bool = True,
        connect_timeout: float = 10.0,
        **options: Any,
    ) -> None:
        check_options(locals(), OWN)
        check_client_options(options, AIOKafkaProducer.__init__, OURS, OWN)
        if topic is not None and topic != legal_topic(topic):
            raise ConfigurationError(
                f"topic={topic!r}: Kafka allows letters, digits, '.', '_', '-'"
            )
        self.topic = topic
        self._creates = creates_topics
        self._connect_timeout = connect_timeout
        self._options = {
            "max_request_size": 2**31 - 1,  # the broker's limit is the one that counts
            **connection_options(options),
            "bootstrap_servers": read_servers(bootstrap_servers),
        }
        self._producer: Any = None
        self._known: dict[str, Topic] = {}
        self._lock = asyncio.Lock()
        self._naming = asyncio.Lock()

    def __repr__(self) -> str:
        servers = ",".join(self._options["bootstrap_servers"])
        return f"KafkaDeadLetters({self.topic!r}, bootstrap_servers={servers!r})"

    @property
    def servers(self) -> Sequence[str]:
        """``host:port`` of each."""
        found: Sequence[str] = self._options["bootstrap_servers"]
        return found

    async def outputs(self, letters: Sequence[DeadLetter]) -> list[Output | Exception]:
        """The letters as outputs of a transaction. A missing topic is created, as `send` does it.

        Returns:
            an output for each, in order; or why there is none now.
        """
        async with self._lock:
            try:
                await self._start(self._connect_timeout)
            except ConsumerSdkError as error:
                return [error] * len(letters)
            made = [await self._output(letter) for letter in letters]
            if any(isinstance(each, Exception) for each in made):
                await self._stop()
            return made

    async def _output(self, letter: DeadLetter) -> Output | Exception:
        try:
            topic = await self._topic(self.topic or self._default_topic(letter), letter)
            place, headers = letter_partition(topic, letter), self._headers(letter)
            return Output.make(topic.name, letter.value, letter.key, headers, place)
        except Exception as error:  # noqa: BLE001 - it is this letter's outcome
            return translate(error, "writing a dead letter")

    async def open(self) -> None:
        """Connects only if a topic has to exist already, and checks that.

        Raises:
            ConfigurationError: it does not.
            AdapterError: the servers cannot be reached, or refused.
        """
        if self.topic is not None and not self._creates:
            async with self._lock:
                await keep_trying(self._start, self._connect_timeout)
                await self._topic(self.topic, None)

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Writes them; one outcome for each, in order."""
        async with self._lock:
            try:
                await self._start(self._connect_timeout)
            except ConsumerSdkError as error:
                return [Outcome.retry(error)] * len(letters)
            errors = await asyncio.gather(*map(self._try, letters))
            # Letters that share a batch share its fate: alone, only the large ones are too large.
            for at, letter in enumerate(letters):
                if isinstance(errors[at], MessageSizeTooLargeError):
                    errors[at] = await self._try(letter)
            if not all(e is None or isinstance(e, MessageSizeTooLargeError) for e in errors):
                await self._stop()  # begin anew: connections, and what is known of the topics
            return [_outcome(error) for error in errors]

    async def aclose(self) -> None:
        """Idempotent; waits for what is being sent, within bounds."""
        async with self._lock:
            await self._stop()

    _default_topic = staticmethod(letter_topic)
    _headers = staticmethod(letter_headers)

    # -- one letter ---------------------------------------------------------------------------

    async def _try(self, letter: DeadLetter) -> Exception | None:
        try:
            await self._send(letter)
        except Exception as error:  # noqa: BLE001 - it is this letter's outcome
            return error
        return None

    async def _send(self, letter: DeadLetter) -> None:
        topic = await self._topic(self.topic or self._default_topic(letter), letter)
        partition = letter_partition(topic, letter)
        record = {"key": letter.key, "value": letter.value, "headers": self._headers(letter)}
        if letter.key is None and letter.value is None:
            # The client refuses such a record one by one, but Kafka allows it.
            batch = self._producer.create_batch()
            batch.append(timestamp=None, **record)
            future = await self._producer.send_batch(batch, topic.name, partition=partition or 0)
        else:
            future = await self._producer.send(topic.name, partition=partition, **record)
        await future

    # -- topics -------------------------------------------------------------------------------

    async def _topic(self, name: str, letter: DeadLetter | None) -> Topic:
        """The topic, made if need be; one look or creation at a time."""
        async with self._naming:
            if name not in self._known:
                self._known[name] = await self._find_or_create(name, letter)
        return self._known[name]

    async def _find_or_create(self, name: str, letter: DeadLetter | None) -> Topic:
        client = self._producer.client
        wanted = [name] if letter is None else [name, legal_topic(letter.partition.stream)]
        if self._creates:
            found = await describe_topics(client, wanted)
        else:  # whoever makes it may have done so a moment ago
            found = await await_topics(client, [name])
        if found[name].is_absent:
            await self._create(name, found.get(wanted[-1]))
            found = await await_topics(client, [name], PROPAGATION)
        if found[name].error:
            raise TransientAdapterError(f"dead-letter topic {name!r} is not ready yet")
        return found[name]

    async def _create(self, name: str, origin: Topic | None) -> None:
        if not self._creates:
            raise ConfigurationError(
                f"dead-letter topic {name!r} does not exist: create it, or let "
                f"KafkaDeadLetters(creates_topics=True) do so"
            )
        partitions = 1 if origin is None or origin.error else len(origin.partitions)
        replicas = 1 if origin is None or origin.error else origin.replicas
        log.warning("creating dead-letter topic %r with %d partitions", name, partitions)
        request = CreateTopicsRequest(
            [(name, partitions, replicas, [], list(CREATED.items()))], 30_000, False
        )
        client = self._producer.client
        controller = client.cluster.controller
        node = client.get_random_node() if controller is None else controller.nodeId
        answer = await client.send(node, request)
        for _name, code, *why in answer.topic_errors:
            if code not in (0, ALREADY_EXISTS):
                raise TransientAdapterError(
                    f"dead-letter topic {name!r} was not created (error {code} {why}); create it, "
                    f"or let this principal do so"
                )

    # -- the producer -------------------------------------------------------------------------

    async def _start(self, seconds: float) -> None:
        if self._producer is None:
            self._producer = await start_producer(seconds, **self._options)

    async def _stop(self) -> None:
        producer, self._producer = self._producer, None
        self._known = {}
        if producer is not None:
            await stop_producer(producer)


class KafkaRecords(KafkaDeadLetters):
    """Writes the records of letters as they were, by default to the topics that they came from."""

    __slots__ = ()

    @staticmethod
    def _default_topic(letter: DeadLetter) -> str:
        return letter.partition.stream

    @staticmethod
    def _headers(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
        return [*own_headers(letter.headers)]


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return Outcome.durable()
    return Outcome.retry(translate(error, "writing a dead letter"))
