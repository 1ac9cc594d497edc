"""Reads and removes dead letters: in SQLite files, and in topics and streams as a consumer group.

A letter is removed only after the command has finished with it: SQLite deletes its row; a group settles it, with
holes where letters stay. After a kill in between, the command handles that letter once more.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from consumer_sdk.cli.groups.groups import Group, opened_group
from consumer_sdk.dead_letters.local import LocalDeadLetters
from consumer_sdk.dead_letters.reading import letter_in
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.options import shown
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Batch, DeadLetter, Message, Partition, Position, StartPoint
from consumer_sdk.runtime import Consumer

__all__ = ["Deal", "Found", "Letters", "opened_letters"]

GROUP = "dead-letters"
"""Who deals with letters, unless the operator says otherwise; Pulsar's letters are kept for it."""
ENDLESS = 2**40
"""Letters that stay are in flight until the end."""
DRAIN = 1.0
"""Seconds that the end waits for letters that stay, and for the last flush."""
IDLE = 60.0
"""Seconds without a letter, although there are some, after which somebody else must have them."""


class Found(NamedTuple):
    """A record of a dead-letter topic or stream, or a row of a file.

    Attributes:
        place: tells it apart from others there: ``partition@position``, or a number.
        letter: None if it is no letter of this SDK.
        flaw: why it is no letter.
    """

    place: str
    letter: DeadLetter | None
    flaw: str = ""


Deal: TypeAlias = Callable[[Sequence[DeadLetter]], Awaitable[Sequence[bool]]]
"""Does something with letters, and says of each whether it may go. Called again with the next ones."""
Wanted: TypeAlias = Callable[[Found], bool]
Counted: TypeAlias = Callable[[int], None]


def _ignored(_count: int) -> None:
    """Ignores the count."""


class Letters(ABC):
    """The letters that are in one place now; letters that come meanwhile are left for the next command."""

    __slots__ = ()

    @abstractmethod
    def all(self) -> AsyncIterator[Found]:
        """The letters that are not settled, in order; changes nothing."""

    @abstractmethod
    async def deal(
        self, wanted: Wanted, deal: Deal, *, at_once: int, limit: int, counted: Counted = _ignored
    ) -> None:
        """Hands letters over that are chosen; those that may be removed are removed when it returns.

        Args:
            at_once: letters that are handed over together, at most.
            limit: letters that are handed over at all.
            counted: called with how many are wanted, before the first is handed over.

        Cancellation: those that `deal` has answered for go, or are handed over again.
        """


class LocalLetters(Letters):
    """The letters in a SQLite file."""

    def __init__(self, file: LocalDeadLetters) -> None:
        self._file = file

    async def all(self) -> AsyncIterator[Found]:
        async for id_, letter in self._file.letters():
            yield Found(str(id_), letter)

    async def deal(
        self, wanted: Wanted, deal: Deal, *, at_once: int, limit: int, counted: Counted = _ignored
    ) -> None:
        last, count = 0, 0
        async for found in self.all():
            last = max(last, int(found.place))
            count += wanted(found)
        counted(count)
        after = 0
        while limit > 0 and after < last:
            page = await self._file.read(after=after, limit=at_once)
            after = page[-1].id if page else last
            ours = [
                each
                for each in page
                if each.id <= last and wanted(Found(str(each.id), each.letter))
            ]
            limit -= len(ours := ours[:limit])
            done = await deal([each.letter for each in ours]) if ours else []
            await self._file.delete(
                [each.id for each, gone in zip(ours, done, strict=True) if gone]
            )


class GroupLetters(Letters):
    """The letters in a topic or stream, which a group settles.

    Args:
        url: of its consumers.
        store: theirs.
    """

    def __init__(self, group: Group, url: str, store: str | None) -> None:
        self._group = group
        self._url = url
        self._store = store

    async def all(self) -> AsyncIterator[Found]:
        async for _partition, found in self._open(await self._ends()):
            yield found

    async def _ends(self) -> Mapping[Partition, Position]:
        reader = self._group.reader
        ends = await reader.positions(await reader.partitions(), StartPoint.LATEST)
        return {partition: end for partition, end in ends.items() if end is not None}

    async def _open(
        self, ends: Mapping[Partition, Position]
    ) -> AsyncIterator[tuple[Partition, Found]]:
        """The letters that the group has not settled."""
        reader = self._group.reader
        first = await reader.positions(ends.keys(), StartPoint.EARLIEST)
        known = await self._group.checkpoints(ends.keys())
        for partition, end in ends.items():
            checkpoint = known[partition]
            starts = (first[partition], None if checkpoint is None else checkpoint.start)
            start = max((each for each in starts if each is not None), default=end)
            parts: Any = reader.read_range(PartitionRange(partition, start, end), with_headers=True)
            async with aclosing(parts):
                async for columns in parts:
                    for at, position in enumerate(columns.positions):
                        if checkpoint is None or not checkpoint.is_settled(position):
                            record = columns.cut(at, at + 1)
                            yield partition, self._read(partition, position, record)

    def _read(self, partition: Partition, position: Position, record: Any) -> Found:
        return self._found(
            partition,
            position,
            key=record.keys[0],
            value=record.values[0],
            headers=record.headers[0] if record.headers else (),
            timestamp=record.timestamps[0],
        )

    def _found(self, partition: Partition, position: Position, **record: Any) -> Found:
        place = f"{partition.id}@{self._group.reader.encode_position(position)}"
        try:
            return Found(place, letter_in(self._group.reader.broker, **record))
        except ValueError as error:
            return Found(place, None, str(error))

    async def deal(
        self, wanted: Wanted, deal: Deal, *, at_once: int, limit: int, counted: Counted = _ignored
    ) -> None:
        ends = await self._ends()
        if not (awaited := await self._places(ends, wanted)):
            return
        counted(len(awaited))
        consumer = Consumer(
            self._url,
            store=self._store,
            max_in_flight=ENDLESS,
            max_in_flight_bytes=ENDLESS,
            max_holes=None,
            drain_timeout=DRAIN,
        )
        async with consumer:
            batches = aiter(consumer.batches(max_messages=at_once))
            while awaited and limit > 0:
                if (batch := await _next(batches)) is None:
                    self._check_gone(awaited & await self._places(ends, wanted))
                    break
                ours = [each for each in batch if _is_before(each, ends)]
                # A partition that was lost and came back brings its letters twice.
                awaited.difference_update((e.partition, self._letter(e).place) for e in ours)
                chosen = [each for each in ours if wanted(self._letter(each))]
                limit -= len(chosen := chosen[:limit])
                await self._deal(chosen, deal)
            await consumer.flush()

    async def _places(
        self, ends: Mapping[Partition, Position], wanted: Wanted
    ) -> set[tuple[Partition, str]]:
        """The places of the chosen letters that are not settled."""
        return {
            (partition, found.place) async for partition, found in self._open(ends) if wanted(found)
        }

    def _check_gone(self, left: Collection[object]) -> None:
        """Sees that letters which do not come were settled by another replay."""
        if left:
            raise TransientAdapterError(
                f"{len(left)} letters do not come for {IDLE:g} s: does somebody else read them as "
                f"group {self._group.name!r}?"
            )

    async def _deal(self, chosen: Sequence[Message], deal: Deal) -> None:
        letters = [each for message in chosen if (each := self._letter(message).letter)]
        done = await deal(letters) if letters else []
        for message, is_gone in zip(chosen, done, strict=True):
            if is_gone:
                message.ack()

    def _letter(self, message: Message) -> Found:
        return self._found(
            message.partition,
            message.position,
            key=message.key,
            value=message.value,
            headers=message.headers,
            timestamp=message.timestamp,
            ordering_key=message.ordering_key,
            details=message.details,
        )


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    """The next record; None: none has come for long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(IDLE):
            return await anext(batches)
    return None


def _is_before(message: Message, ends: Mapping[Partition, Position]) -> bool:
    end = ends.get(message.partition)
    return end is not None and bool(message.position < end)


@asynccontextmanager
async def opened_letters(url: str, group: str | None, store: str | None) -> AsyncIterator[Letters]:
    """The letters of a URL as consumers write it; closed in the end.

    Raises:
        ConfigurationError: the URL cannot work.
        ConsumerSdkError: it cannot be opened.
    """
    if url.startswith("sqlite:"):
        async with _opened_file(url) as file:
            yield LocalLetters(file)
        return
    name = "subscription" if url.startswith("pulsar") else "group"
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a bracket that is not closed
        raise ConfigurationError(f"{shown(url)}: {error}; write it as consumers do") from error
    texts = dict(parse_qsl(parts.query, keep_blank_values=True))
    named = group or texts.get(name) or GROUP
    url = urlunsplit(parts._replace(query=urlencode(texts | {name: named})))
    async with opened_group(url, store) as opened:
        yield GroupLetters(opened, url, store)


@asynccontextmanager
async def _opened_file(url: str) -> AsyncIterator[LocalDeadLetters]:
    file = dead_letters_from_url(url)
    assert isinstance(file, LocalDeadLetters)  # noqa: S101 - its scheme says so
    path = unquote(urlsplit(url).path)
    if not await asyncio.to_thread(Path(path).exists):
        raise ConfigurationError(f"{path}: there is no such file")
    try:
        await file.open()
        yield file
    finally:
        await file.aclose()
