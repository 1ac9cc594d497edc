"""Records that trouble consumers, on a real Kafka: poison, tombstones, odd keys."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from consumer_sdk import Message, Ordering, Reject
from consumer_sdk.testing.conformance.adapters import Record
from tests.integration.field import Field, until

pytestmark = pytest.mark.kafka

RECORDS = [
    Record(b'{"n": 0}', b"a"),
    Record(b"\xff\xfe no text", b"a", (("trace", b"\x00\xff"), ("trace", None)), 1_700_000_000_000),
    Record(b'{"n": 2}', b"a"),
    Record(b'{"n": -3}', b"b"),
    Record(None, b"a"),
    Record(None, None),
    Record(b"", b""),
    Record(b'{"n": 7}', b"c"),
]


async def test_poison_reaches_the_dead_letter_topic_and_its_neighbours_pass_once(
    field: Field,
) -> None:
    """T14, T22, T29: retried, then kept with error, attempts and origin; all else goes on."""
    await field.create(2)
    await field.kafka.append(field.topic, RECORDS, 1)
    deliveries: Counter[int] = Counter()
    order: list[int] = []

    async def handle(message: Message) -> None:
        deliveries[message.position] += 1
        if message.value:
            number = json.loads(message.value.decode())["n"]
            if number < 0:
                raise Reject("negative")
        order.append(message.position)

    async with field.running(field.consumer(), handle):
        await field.until_committed({1: 8})
        letters = await field.read_all(f"{field.topic}-{field.group}-DLQ", 2)
    assert deliveries == Counter(range(8)) + Counter({1: 2})
    assert [position for position in order if position in (0, 2, 4)] == [0, 2, 4]
    by_position = {dict(letter.headers)["dlq.position"]: letter for letter in letters}
    poison, rejected = by_position[b"1"], by_position[b"3"]
    assert (poison.key, poison.value) == (RECORDS[1].key, RECORDS[1].value)
    assert tuple(poison.headers[:2]) == RECORDS[1].headers
    told = dict(poison.headers)
    assert told["dlq.stream"] == field.topic.encode()
    assert told["dlq.group"] == field.group.encode()
    assert (told["dlq.partition"], told["dlq.attempts"]) == (b"1", b"3")
    assert told["dlq.timestamp"] == b"1700000000000"
    assert told["dlq.error-type"] == b"builtins.UnicodeDecodeError"
    assert b"can't decode byte 0xff" in told["dlq.error"]
    told = dict(rejected.headers)
    assert told["dlq.error"] == b"negative"
    assert (told["dlq.error-type"], told["dlq.attempts"]) == (b"rejected", b"1")


async def test_keys_hold_up_only_what_has_to_wait_for_them(field: Field) -> None:
    """T24: null and empty keys are no key; the same key in two topics is two keys."""
    first, second = await field.create(), await field.create()
    rows = [Record(b"%d" % n, key) for n, key in enumerate([None, None, b"", b"", b"k", b"k"])]
    await field.kafka.append(first, rows)
    await field.kafka.append(second, [Record(b"6", b"k")])
    started: list[bytes | None] = []
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        started.append(message.value)
        await gate.wait()

    consumer = field.consumer(first, second)
    async with field.running(consumer, handle, ordering=Ordering.KEY) as running:
        await until(lambda: len(started) == 6, "six at once", running)
        await until(lambda: consumer.stats().fetched == 7, "all are here", running)
        assert b"5" not in started
        gate.set()
        await until(lambda: len(started) == 7, "the last", running)
        await field.until_committed({0: 1})
    assert started[-1] == b"5"
