"""Positions on a real Kafka: foreign, too old, too new, past what brings no record."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from consumer_sdk import Consumer, Message, Partition, PositionOutOfRangeError
from consumer_sdk.adapters.kafka.commits.metadata import write_metadata
from consumer_sdk.records import Checkpoint
from consumer_sdk.testing.conformance.adapters import Record
from tests.integration.field import PATIENCE, Field, until

pytestmark = pytest.mark.kafka

FOREIGN = {
    "words": "written by hand",
    "streams": base64.b64encode(b"\x02" + (2**62).to_bytes(8, "big")).decode(),
    "run-lengths": base64.b64encode(b"o" + b"\xff\xff\xff\x7f" * 8).decode(),
    "json": json.dumps({"version": 999, "ranges": [["4", "9"]], "resume": "9"}),
    "controls": "\x00\x01\ud7ff" * 50,
    "full": "x" * 4096,
}
"""What other programs, and other versions, leave in a commit's metadata."""


async def test_foreign_commit_metadata_is_no_reason_to_stop_or_to_skip(field: Field) -> None:
    """T9: the position counts; what stands beside it, and is not ours, does not."""
    await field.create()
    await field.append(6)
    for group, metadata in FOREIGN.items():
        await field.commit_as_another(3, metadata, group)
        async with asyncio.timeout(PATIENCE), field.consumer(group=group) as consumer:
            taken = [await anext(consumer) for _ in range(3)]
            assert [message.position for message in taken] == [3, 4, 5], group
            assert all(message.ack() for message in taken)
            await consumer.flush()


async def test_ranges_beyond_the_end_of_the_log_skip_no_record_to_come(field: Field) -> None:
    """T9: a hostile run, or a log that was cut: what is written there later is delivered."""
    await field.create()
    await field.append(6)
    hostile = Checkpoint(2, 3, ((4, 4), (5, 2**62)))
    partition = Partition(field.topic, "0")
    text = write_metadata(hostile, 3, group=field.group, partition=partition, limit=4096).data
    await field.commit_as_another(3, text)
    async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1) as consumer:
        taken = [await anext(consumer) for _ in range(2)]
        assert [message.position for message in taken] == [3, 5]
        await field.append(2)
        assert [await _position(consumer) for _ in range(2)] == [6, 7]


async def _position(consumer: Consumer) -> int:
    async with asyncio.timeout(PATIENCE):
        return int((await anext(consumer)).position)


@pytest.mark.parametrize("committed", [2, 50])
async def test_position_out_of_range_stops_by_default_before_any_record(
    field: Field, committed: int
) -> None:
    """T12: retention has passed it, or the log ends before it: said, and left as it is."""
    await field.create()
    await field.append(10)
    await field.kafka.truncate(field.topic, 6)
    await field.commit_as_another(committed)
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)

    with pytest.raises(PositionOutOfRangeError, match=r"out_of_range='earliest'") as caught:
        async with asyncio.timeout(PATIENCE):
            await field.consumer().run(handle, handle_signals=False)
    assert f"at {committed}" in str(caught.value)
    assert seen == []
    assert await field.committed() == {0: committed}


@pytest.mark.parametrize(
    "committed,policy,first,lost",
    [(2, "earliest", 6, 4), (2, "latest", 10, 8), (50, "earliest", 6, 0), (50, "latest", 10, 0)],
)
async def test_position_out_of_range_goes_on_as_asked_and_counts_what_is_lost(
    field: Field, committed: int, policy: str, first: int, lost: int
) -> None:
    """T12: once, durably: a restart does not decide again."""
    await field.create()
    await field.append(10)
    await field.kafka.truncate(field.topic, 6)
    await field.commit_as_another(committed)
    async with field.consumer(out_of_range=policy, drain_timeout=0.1) as consumer:
        pulling = asyncio.create_task(_position(consumer))
        await until(lambda: bool(consumer.stats().partitions), "it is granted")
        await field.until_committed({0: first})
        await field.append(2)
        assert await pulling == first
        assert consumer.stats().lost == lost
    async with field.consumer(drain_timeout=0.1) as consumer:
        assert await _position(consumer) == first


async def test_retention_that_overtakes_a_running_consumer_follows_the_policy(
    field: Field,
) -> None:
    """T12: the log start passes a paused partition; with "earliest" it goes on from there."""
    await field.create()
    await field.append(2)
    consumer = field.consumer(out_of_range="earliest", max_in_flight=2, fetch_records=2)
    async with asyncio.timeout(PATIENCE), consumer:
        held = [await anext(consumer) for _ in range(2)]
        await until(lambda: bool(consumer.stats().paused), "fetching pauses")
        for _ in range(20):  # so many that no fetch on its way brings them all
            await field.append(10)
        await field.kafka.truncate(field.topic, 195)
        assert all(message.ack() for message in held)
        seen: list[int] = []
        while seen[-1:] != [201]:
            message = await anext(consumer)
            seen.append(message.position)
            message.ack()
        await consumer.flush()
        assert seen[-7:] == list(range(195, 202))
        assert consumer.stats().lost > 0
        assert await field.committed() == {0: 202}


async def test_records_in_hand_are_finished_when_retention_overtakes_the_fetch(
    field: Field,
) -> None:
    """T12: the broker has lost them; each is handed out once, and only the unread ones are lost."""
    await field.create()
    await field.append(20)
    consumer = field.consumer(out_of_range="earliest", max_in_flight=10, fetch_records=10)
    seen: list[Message] = []
    is_overtaken = asyncio.Event()

    async def handle(message: Message) -> None:
        seen.append(message)
        await is_overtaken.wait()

    async with field.running(consumer, handle, concurrency=2) as running:
        await until(lambda: bool(consumer.stats().paused and seen), "fetching pauses", running)
        for _ in range(20):  # so many that no fetch on its way brings them all
            await field.append(10)
        await field.kafka.truncate(field.topic, 215)
        in_hand = range(consumer.stats().fetched)
        is_overtaken.set()
        await until(lambda: any(m.position == 219 for m in seen), "it goes on", running)
        await field.until_committed({0: 220})
    taken = sorted(message.position for message in seen)
    last_old = max(at for at in taken if at < 215)
    assert taken == [*range(last_old + 1), *range(215, 220)]
    assert last_old >= in_hand[-1]
    assert consumer.stats().lost == 215 - last_old - 1


async def test_position_passes_what_transactions_leave_behind(field: Field) -> None:
    """T10: aborted records and markers bring no record; the commit reaches the end, lag is 0."""
    await field.create()
    await field.kafka.append(field.topic, [Record(b"0"), Record(b"1")])
    await field.kafka.skip(field.topic)
    async with field.kafka.transaction() as producer:
        await field.kafka.append(field.topic, [Record(b"2")], 0, producer)
    await field.kafka.skip(field.topic)
    seen: list[bytes | None] = []

    async def handle(message: Message) -> None:
        seen.append(message.value)

    consumer = field.consumer()
    async with field.running(consumer, handle):
        await field.until_committed({0: 12})
        assert set((await consumer.lag()).values()) == {0}
    assert seen == [b"0", b"1", b"2"]


async def test_what_was_only_fetched_or_acked_above_a_hole_moves_no_position(
    field: Field,
) -> None:
    """T4, T21: an ack commits no other record, and closing commits nothing unsettled."""
    await field.create()
    await field.append(5)
    for left in ([0, 1, 2, 3, 4], [0, 1, 3, 4]):
        async with asyncio.timeout(PATIENCE), field.consumer(drain_timeout=0.1) as consumer:
            taken = [await anext(consumer) for _ in left]
            assert [message.position for message in taken] == left
            assert taken[left.index(4) - 2].ack()
        assert (await field.committed()).get(0, 0) == 0
