"""Dead letters in a Kinesis stream; `records.letter_lines` has the form of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from consumer_sdk.abc import DeadLetters
from consumer_sdk.adapters.kinesis import client_support as _support  # noqa: F401 - is it there?
from consumer_sdk.adapters.kinesis.service.connection import Connection, Link
from consumer_sdk.adapters.kinesis.service.hooks import stream_large_body
from consumer_sdk.adapters.kinesis.service.requests import address, no_stream, required
from consumer_sdk.adapters.kinesis.service.service import ShardGoneError
from consumer_sdk.adapters.kinesis.service.translation import Faults, readable, refusal
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.errors import (
    AdapterError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.options import make_options
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.records.letter_lines import encode_letter, partition_key

__all__ = ["KinesisDeadLetters", "KinesisRecords"]

MOST_RECORDS = 500
MOST_BYTES = 5 * 1024 * 1024
"""In one PutRecords; Amazon takes ten today, other servers five. A larger record goes alone."""

DEFAULT_KIB = 1024
"""The largest record of a stream that does not say."""

Entry = tuple[int, dict[str, Any], int]
"""A letter's place among those to be sent, its record, and the bytes that count."""


class _RefusedError(AdapterError):
    """The request as such was not accepted, which may be the fault of a single record."""


REFUSED: Faults = {
    "InvalidArgumentException": _RefusedError,
    "ValidationException": _RefusedError,
}


class KinesisDeadLetters(DeadLetters):
    """Writes dead letters to a Kinesis stream that exists; never creates one.

    `consumer_sdk.dead_letters.decode_letter` reads a record of it. Kinesis forgets records after
    the stream's retention, a day by default: raise it.

    A letter is a little larger than its record. If it is too large for the stream, the outcome is a
    RETRY that names its size, until the stream's largest record is raised (UpdateMaxRecordSize). If
    the record's own stream allows 10 MiB, the maximum of Kinesis, use dead letters of another kind.

    Args:
        stream: its name or its ARN.
        options: those of `consumer_sdk.adapters.kinesis.service.connection.Connection`, such as
            ``region_name``.

    Raises:
        ConfigurationError: this is no name of a stream; an option is unknown or cannot work.
    """

    __slots__ = ("_address", "_connection", "_is_open", "_largest", "_link", "_lock", "stream")

    def __init__(self, stream: str, **options: Any) -> None:
        region, self._address = address(stream)
        self.stream = stream
        self._connection = make_options(Connection, options)
        self._link = Link(self._connection, region)
        self._lock = asyncio.Lock()
        self._is_open = False
        self._largest = 0

    def __repr__(self) -> str:
        return f"KinesisDeadLetters({self.stream!r})"

    async def open(self) -> None:
        """Checks that the stream exists.

        Raises:
            ConfigurationError: it is not, or the options cannot work.
            AdapterError: Kinesis cannot be reached, or refused.
        """
        async with self._lock:
            await keep_trying(lambda _: self._start(), self._connection.connect_timeout)

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Writes them; one outcome for each, in order."""
        async with self._lock:
            try:
                return await self._send(letters)
            except ConsumerSdkError as error:
                return [Outcome.retry(error)] * len(letters)

    async def aclose(self) -> None:
        """Idempotent; waits for what is being sent, within bounds."""
        async with self._lock:
            await self._stop()

    _data = staticmethod(encode_letter)

    # -- sending ------------------------------------------------------------------------------

    async def _send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        await self._start()
        entries = [_entry(at, self._data(letter), letter) for at, letter in enumerate(letters)]
        if any(size > self._largest for _, _, size in entries):
            await self._look()  # it may have been raised since
        outcomes = {at: self._too_large(size) for at, _, size in entries if size > self._largest}
        for batch in _batches([entry for entry in entries if entry[0] not in outcomes]):
            outcomes |= await self._put(batch)
        return [outcomes[at] for at in range(len(letters))]

    async def _put(self, batch: Sequence[Entry]) -> dict[int, Outcome]:
        """Writes a batch; a letter that spoils it is found by halves."""
        try:
            found = await self._request([record for _, record, _ in batch])
        except _RefusedError as error:
            if len(batch) > 1:
                half = len(batch) // 2
                return await self._put(batch[:half]) | await self._put(batch[half:])
            found = [Outcome.retry(error)]
        except ConsumerSdkError as error:
            found = [Outcome.retry(error)] * len(batch)
        return {at: outcome for (at, _, _), outcome in zip(batch, found, strict=True)}

    async def _request(self, records: Sequence[dict[str, Any]]) -> list[Outcome]:
        doing = self._doing()
        parameters = {**self._address, "Records": records}
        answer = await self._link.call("put_records", parameters, doing, REFUSED)
        results = required(answer, "Records", list, doing)
        if len(results) != len(records):
            raise TransientAdapterError(
                f"{doing}: {len(results)} answers to {len(records)} letters"
            )
        with readable(doing):
            return [self._outcome(result) for result in results]

    def _outcome(self, result: dict[str, Any]) -> Outcome:
        if not result.get("ErrorCode"):
            return Outcome.durable()
        message = result.get("ErrorMessage", "")
        return Outcome.retry(refusal(result["ErrorCode"], message, self._doing()))

    def _too_large(self, size: int) -> Outcome:
        return Outcome.retry(
            AdapterError(
                f"{self._doing()}: one of {size:,} bytes, and the stream takes "
                f"{self._largest:,}: raise its largest record (UpdateMaxRecordSize), up to 10 MiB, or "
                f"give the consumer dead letters of another kind, such as "
                f"dead_letters='sqlite:///var/lib/letters.db'. Until then the record is tried again "
                f"and holds back the shard's children"
            )
        )

    # -- the stream ---------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._is_open:
            return
        try:
            await self._link.open()
            self._link.events.register("before-send.kinesis.PutRecords", stream_large_body)
            await self._look()
            self._is_open = True
        finally:
            if not self._is_open:
                await self._link.aclose()

    async def _look(self) -> None:
        doing = f"looking at the dead-letter stream {self.stream!r}"
        try:
            answer = await self._link.call("describe_stream_summary", self._address, doing)
        except ShardGoneError as error:
            raise no_stream(self.stream, self._connection.place()) from error
        summary = required(answer, "StreamDescriptionSummary", dict, doing)
        with readable(doing):
            self._largest = int(summary.get("MaxRecordSizeInKiB", DEFAULT_KIB)) * 1024

    async def _stop(self) -> None:
        self._is_open = False
        await self._link.aclose()

    def _doing(self) -> str:
        return f"writing dead letters to stream {self.stream!r}"


class KinesisRecords(KinesisDeadLetters):
    """Writes the original records of letters. A user record of an aggregate becomes a record of its own."""

    __slots__ = ()

    @staticmethod
    def _data(letter: DeadLetter) -> bytes:
        return letter.value or b""


def _entry(at: int, data: bytes, letter: DeadLetter) -> Entry:
    key = partition_key(letter)
    return at, {"Data": data, "PartitionKey": key}, len(data) + len(key.encode())


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """As few as the limits of a request allow, in order."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == MOST_RECORDS or size + entry[2] > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry[2]
    if batch:
        yield batch
