"""Destinations that send the records of dead letters to a stream again, unchanged.

Each is the `DeadLetters` of its broker in another form: it writes the record's key, value, own headers and time, and
nothing that says that it was a dead letter. Without a topic, each record goes to the stream that it came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.options import kinds_of, read_texts
from consumer_sdk.records import DeadLetter, Outcome

if TYPE_CHECKING:
    from consumer_sdk.adapters.kinesis.dead_letters import KinesisDeadLetters

__all__ = ["resending_to"]

FORM = (
    "write kafka://host:port[,host:port][/topic], pulsar://host:port[/topic] or "
    "kinesis://region[/stream], with ?option=value"
)


def resending_to(url: str, *, is_source: bool = False) -> DeadLetters:
    """The destination that sends records to ``url``; not open yet.

    Args:
        url: of a topic or stream; without one, each record goes to its own.
        is_source: it is the URL of the letters: its topic is ignored, and so are options for reading.

    Raises:
        ConfigurationError: it names no destination, or an option cannot work.
        MissingExtraError: the broker's client is not installed.
    """
    parts, texts = split_url(url, OPENERS, FORM)
    return OPENERS[parts.scheme](parts, texts, is_source=is_source)


def _kafka(parts: SplitResult, texts: Mapping[str, str], *, is_source: bool) -> DeadLetters:
    from consumer_sdk.adapters.kafka.client.options import read_url
    from consumer_sdk.adapters.kafka.dead_letters import KINDS, KafkaRecords

    set_here = {"topic", "creates_topics"}
    kinds = {name: kind for name, kind in KINDS.items() if name not in set_here}
    known = _known(texts, kinds, is_source=is_source)
    _, options = read_url(parts, known, kinds, FORM)
    return KafkaRecords(_name(parts, is_source=is_source), creates_topics=False, **options)


def _pulsar(parts: SplitResult, texts: Mapping[str, str], *, is_source: bool) -> DeadLetters:
    from consumer_sdk.adapters.pulsar.client.connection import Connection
    from consumer_sdk.adapters.pulsar.dead_letters import PulsarRecords
    from consumer_sdk.adapters.pulsar.options import read_url

    kinds = kinds_of(Connection)
    _, options = read_url(parts, _known(texts, kinds, is_source=is_source), kinds, FORM)
    return PulsarRecords(_name(parts, is_source=is_source), initial_subscription=None, **options)


def _kinesis(parts: SplitResult, texts: Mapping[str, str], *, is_source: bool) -> DeadLetters:
    from consumer_sdk.adapters.kinesis.dead_letters import KinesisRecords
    from consumer_sdk.adapters.kinesis.service.connection import Connection

    kinds = kinds_of(Connection)
    options = read_texts(_known(texts, kinds, is_source=is_source), kinds)
    options["region_name"] = unquote(parts.netloc) or None
    name = _name(parts, is_source=is_source)
    return _EachStream(name, lambda stream: KinesisRecords(stream, **options))


OPENERS: Mapping[str, Callable[..., DeadLetters]] = {
    "kafka": _kafka,
    "kinesis": _kinesis,
    "pulsar": _pulsar,
    "pulsar+ssl": _pulsar,
}


def _known(
    texts: Mapping[str, str], kinds: Mapping[str, object], *, is_source: bool
) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in kinds or not is_source}


def _name(parts: SplitResult, *, is_source: bool) -> str | None:
    return None if is_source else unquote(parts.path.strip("/")) or None


class _EachStream(DeadLetters):
    """One destination for each stream, opened when its first record comes.

    Args:
        name: of one stream for all records; None: each record's own.
    """

    __slots__ = ("_make", "_name", "_opened")

    def __init__(self, name: str | None, make: Callable[[str], KinesisDeadLetters]) -> None:
        self._name = name
        self._make = make
        self._opened: dict[str, KinesisDeadLetters] = {}
        if name is not None:
            make(name)  # whether it is a name

    async def open(self) -> None:
        if self._name is not None:
            await self._destination(self._name)

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        streams = [self._name or letter.partition.stream for letter in letters]
        outcomes: dict[int, Outcome] = {}
        for stream in dict.fromkeys(streams):
            ours = [at for at, name in enumerate(streams) if name == stream]
            found = await self._send(stream, [letters[at] for at in ours])
            outcomes |= dict(zip(ours, found, strict=True))
        return [outcomes[at] for at in range(len(letters))]

    async def _send(self, stream: str, letters: Sequence[DeadLetter]) -> list[Outcome]:
        try:
            destination = await self._destination(stream)
        except ConsumerSdkError as error:
            return [Outcome.retry(error)] * len(letters)
        return await destination.send(letters)

    async def _destination(self, stream: str) -> KinesisDeadLetters:
        if stream not in self._opened:
            made = self._make(stream)
            await made.open()
            self._opened[stream] = made
        return self._opened[stream]

    async def aclose(self) -> None:
        opened, self._opened = self._opened, {}
        await asyncio.gather(*(each.aclose() for each in opened.values()))
