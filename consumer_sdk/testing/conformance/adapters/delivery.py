"""Cases about records: which come, in which order, whatever is cancelled or paused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from consumer_sdk.errors import (
    CheckpointFormatError,
    ConfigurationError,
    StoreError,
    UnreadableRecordError,
)
from consumer_sdk.records import Kind, Message, Run
from consumer_sdk.records.runs import FIRST_UNREADABLE, LAST_UNREADABLE
from consumer_sdk.testing.conformance.adapters.case import AdapterCase
from consumer_sdk.testing.conformance.adapters.harness import Record

__all__ = ["DeliveryCases"]


def numbered(first: int, last: int) -> list[Record]:
    """Records whose values are the numbers from ``first`` up to, not including, ``last``."""
    return [Record(str(number).encode()) for number in range(first, last)]


def values(messages: list[Message]) -> list[int]:
    """The numbers in `numbered` records."""
    return [int(message.value or b"-1") for message in messages]


def messages(runs: Sequence[Run]) -> list[Message]:
    """The messages of all runs, in order."""
    return [message for run in runs for message in run.messages]


class DeliveryCases(AdapterCase):
    """What `Adapter.fetch` promises, for every kind."""

    async def test_no_record_comes_before_assigned_has_returned(self) -> None:
        """While the owner loads checkpoints, fetch has nothing; then the records are there."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 5))
        owner = self.owner()
        owner.gate.clear()
        async with self.member(stream, owner=owner) as member:
            await self.until_event("assigned")
            await member.read_nothing()
            owner.gate.set()
            assert values(await member.read(5)) == list(range(5))

    async def test_owner_that_raises_is_asked_again_and_nothing_flows_before(self) -> None:
        """A failed `assigned` keeps the partition gated, surfaces from fetch, and is retried."""
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 5))
        owner = self.owner()
        owner.failures = [StoreError("unreadable")] * 1000  # however often before the first fetch
        async with self.member(stream, owner=owner) as member:
            errors, found = 0, list[Message]()
            async with asyncio.timeout(self.broker.patience):
                while len(found) < len(places):
                    try:
                        found += messages(await member.fetch(max_wait=0.05))
                    except StoreError:
                        errors += 1
                        owner.failures.clear()
            assert errors >= 1
            assert values(found) == list(range(5))

    async def test_partition_left_out_by_the_owner_is_not_read(self) -> None:
        """An assignment that is missing from the answer is not granted; its neighbour is."""
        stream = await self.broker.create_stream(2)
        await self.broker.append(stream, numbered(0, 5), 0)
        await self.broker.append(stream, numbered(10, 15), 1)
        owner = self.owner()
        owner.left_out = frozenset({self.broker.partition_id(0)})
        async with self.member(stream, owner=owner) as member:
            assert values(await member.read(5)) == [10, 11, 12, 13, 14]
            await member.read_nothing()

    async def test_fetch_cancelled_200_times_loses_nothing_and_keeps_the_order(self) -> None:
        """T15: wherever a cancellation strikes, each record comes once and in order."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 1000))
        chance = random.Random(7)
        found: list[Message] = []
        async with self.member(stream) as member:
            await member.holding(1)
            for _ in range(200):
                fetch = asyncio.create_task(member.fetch(max_records=7, max_wait=0.05))
                await asyncio.wait({fetch}, timeout=chance.choice((0, 0, 0.0005, 0.002)))
                fetch.cancel()
                await asyncio.wait({fetch})
                if not fetch.cancelled():
                    found += messages(fetch.result())
            found += await member.read(1000 - len(found))
        assert values(found) == list(range(1000))

    async def test_fetch_gives_no_more_records_than_asked_for(self) -> None:
        """``max_records`` bounds all runs of a fetch together."""
        stream = await self.broker.create_stream(2)
        for partition in (0, 1):
            await self.broker.append(stream, numbered(0, 50), partition)
        async with self.member(stream) as member:
            await member.holding(2)
            left, limit = 100, 3
            async with asyncio.timeout(self.broker.patience):
                while left:
                    size = len(messages(await member.fetch(max_records=limit)))
                    assert size <= limit
                    left -= size

    async def test_empty_stream_makes_fetch_wait_and_return_nothing(self) -> None:
        """With nothing to read, fetch comes back empty after ``max_wait``."""
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            await member.holding(1)
            async with asyncio.timeout(self.broker.patience):
                await member.read_nothing()

    async def test_record_appended_while_fetch_waits_ends_the_wait(self) -> None:
        """A waiting fetch returns with the record, long before ``max_wait``."""
        stream = await self.broker.create_stream()
        async with self.member(stream) as member:
            await member.holding(1)
            await member.read_nothing()
            fetch = asyncio.create_task(member.fetch(max_wait=10 * self.broker.patience))
            await asyncio.wait({fetch}, timeout=self.broker.quiet)
            await self.broker.append(stream, numbered(0, 1))
            async with asyncio.timeout(self.broker.patience):
                runs = await fetch
            assert values(messages(runs)) == [0]

    async def test_key_value_headers_and_time_come_as_stored(self) -> None:
        """What the broker keeps apart stays apart: nulls, empty bytes, repeated headers."""
        stream = await self.broker.create_stream()
        records = self.broker.faithful
        await self.broker.append(stream, records)
        async with self.member(stream) as member:
            found = await member.read(len(records))
        for message, record in zip(found, records, strict=True):
            assert (message.value, message.key) == (record.value, record.key)
            assert tuple(tuple(pair) for pair in message.headers) == tuple(record.headers)
            assert record.timestamp in {None, message.timestamp}
            assert message.attempt == 1

    async def test_unreadable_record_stops_its_partition_behind_what_came_before(self) -> None:
        """A fault that says where, after all before it; nothing more comes, at any restart."""
        self.needs("unreadable")
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 3))
        await self.broker.append_unreadable(stream)
        await self.broker.append(stream, numbered(4, 6))
        for _ in range(2):
            async with self.member(stream) as member:
                run = await member.read_fault()
                assert isinstance(run.fault, UnreadableRecordError)
                assert stream in str(run.fault)
                assert values(messages(member.runs[:-1])) == [0, 1, 2]
                await member.read_nothing()

    async def test_resume_goes_on_behind_an_unreadable_record(self) -> None:
        """The fault carries the raw bytes as a message between its neighbours, with its place."""
        self.needs("unreadable")
        stream = await self.broker.create_stream()
        before = await self.broker.append(stream, numbered(0, 3))
        await self.broker.append_unreadable(stream)
        behind = await self.broker.append(stream, numbered(4, 6))
        async with self.member(stream) as member:
            run = await member.read_fault()
            (message,) = run.messages
            assert message.value
            assert before[-1] < message.position < behind[0]
            text = member.adapter.encode_position(message.position).encode()
            assert dict(message.headers) == {FIRST_UNREADABLE: text, LAST_UNREADABLE: text}
            member.adapter.resume(run.assignment)
            assert [m.position for m in await member.read(2)] == behind

    async def test_paused_partition_keeps_its_position_and_its_neighbour_flows(self) -> None:
        """T18: a pause lets at most what was on its way through; resuming misses nothing."""
        stream = await self.broker.create_stream(2)
        for partition in (0, 1):
            await self.broker.append(stream, numbered(0, 5), partition)
        async with self.member(stream) as member:
            first, second = await member.holding(2)
            await member.read(10)
            member.adapter.pause(first)
            member.adapter.pause(first)
            for partition in (0, 1):
                await self.broker.append(stream, numbered(5, 10), partition)
            early: list[Message] = []
            async with asyncio.timeout(self.broker.patience):
                while values([m for m in early if m.assignment is second]) != list(range(5, 10)):
                    early += messages(await member.fetch())
            early += messages(await member.fetch())
            assert values([m for m in early if m.assignment is second]) == list(range(5, 10))
            member.adapter.resume(first)
            late = await member.read(10 - len(early))
            assert values([m for m in early + late if m.assignment is first]) == list(range(5, 10))

    async def test_lag_counts_what_was_not_fetched(self) -> None:
        """Of a queue, what its group has not settled; it is None where it is not known."""
        stream = await self.broker.create_stream()
        await self.broker.append(stream, numbered(0, 10))
        async with self.member(stream) as member:
            (assignment,) = await member.holding(1)
            read = await member.read(10)
            capabilities = member.adapter.capabilities
            is_queue = capabilities.kind is Kind.QUEUE
            if is_queue:
                assert (await member.ack(read)).is_done
            expected = None if capabilities.lag_unit is None else 0
            assert (await member.adapter.lag([assignment]))[assignment] == expected
            member.adapter.pause(assignment)
            await member.read_nothing()
            await self.broker.append(stream, numbered(10, 14))
            seen = sum(len(run.messages) for run in await member.fetch())
            if capabilities.lag_unit == "records":
                left = 4 if is_queue else 4 - seen
                assert (await member.adapter.lag([assignment]))[assignment] == left

    async def test_position_text_reads_back_and_hostile_text_does_not(self) -> None:
        """T9: what a store gives back is a position of this broker, or a CheckpointFormatError."""
        stream = await self.broker.create_stream()
        places = await self.broker.append(stream, numbered(0, 3))
        adapter = self.broker.make_adapter(stream, self.new_group())
        texts = [adapter.encode_position(place) for place in places]
        assert [adapter.decode_position(text) for text in texts] == places
        for text in self.broker.hostile_positions:
            with pytest.raises(CheckpointFormatError):
                adapter.decode_position(text)
        await adapter.aclose()

    async def test_stream_that_does_not_exist_is_an_error_at_open(self) -> None:
        """A wrong name is found before any record is fetched, and names what is wrong."""
        adapter = self.broker.make_adapter("no-such-stream", self.new_group())
        with pytest.raises(ConfigurationError, match="no-such-stream"):
            await adapter.open(self.owner())
        await adapter.aclose()
