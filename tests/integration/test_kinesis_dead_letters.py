"""Dead letters of whole consumers of Kinesis: settled only when the letter is durable."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message, Reject
from consumer_sdk.dead_letters import KinesisDeadLetters, LocalDeadLetters, decode_letter
from consumer_sdk.records import DeadLetter, Outcome, OutcomeKind
from consumer_sdk.testing.servers import KinesisServer
from tests.adapters.kinesis.server_harness import connection, delete_stream
from tests.integration.field import until
from tests.integration.kinesis_field import PATIENCE, KinesisField

pytestmark = pytest.mark.kinesis

POISON = {3: "nack", 7: "reject"}
"""What becomes of some numbers; all others are fine."""


@pytest.fixture
def field(kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream of the test's own."""
    return KinesisField(kinesis_server, tmp_path)


class Handler:
    """Fails where it is to, and counts.

    Attributes:
        attempts: by number.
    """

    def __init__(self) -> None:
        self.attempts: Counter[int] = Counter()

    async def handle(self, message: Message) -> None:
        """Raises for poison."""
        number = int(message.value or b"-1")
        self.attempts[number] += 1
        if POISON.get(number) == "reject":
            raise Reject("no good")
        if number in POISON:
            raise ValueError(f"cannot do {number}")


def check(letters: Sequence[DeadLetter], field: KinesisField, shard: str) -> None:
    """One of each: of the record that reached the limit, and of the one that was rejected."""
    failed, rejected = sorted(letters, key=lambda letter: int(letter.value or b""))
    assert (failed.value, failed.key, failed.attempts) == (b"3", b"k3", 3)
    assert "cannot do 3" in failed.error
    assert (rejected.value, rejected.key) == (b"7", b"k7")
    assert "no good" in rejected.error
    for letter in letters:
        assert (letter.partition.stream, letter.partition.id) == (field.stream, shard)
        assert letter.group == "g"


async def run_until_settled(field: KinesisField, consumer: Consumer, handler: Handler) -> None:
    """Until each record has been handled, and the checkpoint covers all of them."""
    async with field.running(consumer, handler.handle) as task:
        await until(lambda: handler.attempts.total() == field.put + 2, "two retries", task)
        await until_settled(field, task)
    assert handler.attempts == Counter(dict.fromkeys(range(field.put), 1) | {3: 3})


async def until_settled(field: KinesisField, task: asyncio.Task[None]) -> None:
    """Waits until the checkpoint has neither a hole nor a record that was tried."""
    async with asyncio.timeout(PATIENCE):
        while True:
            assert not task.done()
            (checkpoint,) = (await field.checkpoints()).values()
            is_whole = not checkpoint.ranges and not checkpoint.attempts
            if is_whole and checkpoint.watermark is not None:
                return
            await asyncio.sleep(0.05)


async def letters_in(field: KinesisField, stream: str) -> list[DeadLetter]:
    """What lies in a stream of dead letters, read by a consumer without a group."""
    found: list[DeadLetter] = []

    async def read(message: Message) -> None:
        found.append(decode_letter(message.value or b""))

    other = KinesisField(field.server, field.store_file.parent)
    other.stream = stream
    reader = other.consumer(other.adapter(group=None), store=None)
    async with other.running(reader, read) as task:
        await until(lambda: len(found) >= len(POISON), "all letters", task)
    return found


async def test_records_that_fail_go_to_a_stream_with_where_they_came_from_and_why(
    field: KinesisField,
) -> None:
    """The envelope says all, and the rest of the shard goes on."""
    (shard,) = await field.create()
    await field.append(20)
    dead = f"dead-{uuid.uuid4().hex}"
    await field.server.create_stream(dead)
    letters = KinesisDeadLetters(dead, **connection(field.server))
    await run_until_settled(field, field.consumer(dead_letters=letters), Handler())
    check(await letters_in(field, dead), field, shard)


async def test_records_that_fail_go_to_the_stores_own_file(field: KinesisField) -> None:
    """The local dead letters share the file of the checkpoints and leases."""
    (shard,) = await field.create()
    await field.append(20)
    letters = LocalDeadLetters(field.store_file)
    await run_until_settled(field, field.consumer(dead_letters=letters), Handler())
    await letters.open()
    try:
        check([stored.letter for stored in await letters.read()], field, shard)
    finally:
        await letters.aclose()


class CountedLetters(KinesisDeadLetters):
    """Counts letters that the stream did not take.

    Attributes:
        refused: how many; each time that one is sent.
    """

    refused = 0

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """See `KinesisDeadLetters.send`."""
        outcomes = await super().send(letters)
        self.refused += sum(each.kind is OutcomeKind.RETRY for each in outcomes)
        return outcomes


async def test_record_whose_letter_cannot_be_written_stays_open_and_comes_again(
    field: KinesisField,
) -> None:
    """Kinesis trap 4: the stream of the letters is gone; no checkpoint passes the records."""
    await field.create()
    await field.append(20)
    dead = f"dead-{uuid.uuid4().hex}"
    await field.server.create_stream(dead)
    letters = CountedLetters(dead, **connection(field.server))
    await letters.open()
    await delete_stream(field.server, dead)
    handler = Handler()
    consumer = field.consumer(dead_letters=letters, drain_timeout=0.1)
    async with field.running(consumer, handler.handle) as task:
        await until(lambda: handler.attempts.total() == field.put + 2, "all of it", task)
        await until(lambda: letters.refused >= 2 * len(POISON), "letters refused twice", task)
    (checkpoint,) = (await field.checkpoints()).values()
    assert len(checkpoint.ranges) == 2  # what lies between the two, and what comes behind
    await field.server.create_stream(dead)
    handler = Handler()
    again = KinesisDeadLetters(dead, **connection(field.server))
    async with field.running(field.consumer(dead_letters=again), handler.handle) as task:
        await until_settled(field, task)
    assert handler.attempts == Counter(POISON.keys())
    assert len(await letters_in(field, dead)) == len(POISON)
