"""The memory for what all partitions receive ahead, without a broker."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.consumer import pump
from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.adapters.pulsar.consumer.read_ahead_budget import (
    COPIES,
    FREE,
    POLL,
    SHORT_POLL,
    LimitedTurn,
    ReadAheadBudget,
)
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Message, StartPoint
from tests.adapters.pulsar.scripted import Client, Native, Owner, adapter_on, begin, subscriber_on

MIB = 1 << 20
TOPIC = "persistent://public/default/t"


def delivery(*sizes: int) -> Delivery:
    """Messages of these sizes."""
    messages = [Message() for _ in sizes]
    for message, size in zip(messages, sizes, strict=True):
        message.value = bytes(size)
    return Delivery(messages, sum(sizes), [(0, n, 0) for n in range(len(sizes))], messages)


def at_once(budget: ReadAheadBudget) -> LimitedTurn | None:
    """A turn, if there is room for it now."""
    return budget.enter(lambda: True)


@pytest.mark.parametrize(
    "limit, partitions, queue",
    [
        (400 * MIB, 20, 10),  # half of it, of messages of 1 MiB
        (62 * MIB, 60, 1),  # one at least
        (100_000 * MIB, 4, 2000),  # what was asked for at most
    ],
)
def test_queues_share_half_of_the_room(limit: int, partitions: int, queue: int) -> None:
    """As many of the largest messages as fit."""
    budget = ReadAheadBudget(limit, MIB, most=2000, batch=MIB)
    budget.partitions = partitions
    budget.check()
    assert [budget.queue_of(n) for n in range(partitions)] == [queue] * partitions
    assert budget.held == queue * partitions * MIB <= limit


def test_turn_without_a_limit_has_room_for_anything_and_never_pauses() -> None:
    """As where no memory_limit= is given."""
    assert FREE.more(1 << 60) is True
    assert FREE.pause(1_000_000) == 0.0
    assert FREE.poll == POLL
    FREE.end([delivery(5)])


def test_buffers_share_what_the_queues_leave() -> None:
    """One byte at least, so that one message may always be there; a partition that left has no queue."""
    budget = ReadAheadBudget(40 * MIB, 10 * MIB, most=2000, batch=MIB)
    assert budget.share == 40 * MIB
    budget.partitions = 0  # all of them have left
    assert budget.share == 40 * MIB
    budget.partitions = 2
    assert [budget.queue_of(name) for name in "ab"] == [1, 1]
    assert (budget.held, budget.share) == (20 * MIB, 10 * MIB)
    assert [budget.queue_of(name) for name in "cd"] == [1, 1]
    assert (budget.held, budget.share) == (40 * MIB, 1)
    budget.no_queue("nobody")
    budget.no_queue("d")
    budget.no_queue("d")
    assert (budget.held, budget.share) == (30 * MIB, 5 * MIB)


def test_queues_of_partitions_that_are_leaving_count_while_they_are_there() -> None:
    """No new one is made for them."""
    budget = ReadAheadBudget(40 * MIB, 10 * MIB, most=2000, batch=MIB)
    budget.partitions = 2
    assert [budget.queue_of(name) for name in "ab"] == [1, 1]
    budget.partitions = 1
    budget.check()
    budget.queue_of("c")
    with pytest.raises(ConfigurationError, match="made for fewer than 1: 52428800 bytes"):
        budget.check()


@pytest.mark.parametrize("limit, polls", [(60, [POLL, POLL]), (59, [POLL, SHORT_POLL])])
def test_turn_is_short_where_there_is_no_room_for_another_one(limit: int, polls: list[int]) -> None:
    """To the byte; there is none beyond the limit."""
    budget = ReadAheadBudget(limit, 10, most=2000, batch=1)
    budget.partitions = 2
    turns = [at_once(budget) for _ in polls]
    assert [turn and turn.poll for turn in turns] == polls
    turn = at_once(budget)
    assert (turn and turn.poll) == (SHORT_POLL if limit == 60 else None)


def test_two_receive_at_a_time_after_a_message_that_was_much_too_large() -> None:
    """For each of them as much is reserved as there is."""
    budget = ReadAheadBudget(400, 10, most=2000, batch=1)
    budget.partitions = 4
    turn = at_once(budget)
    assert turn is not None
    turn.end([delivery(5000)])
    budget.buffered("a", 0, arrived=5000)
    assert budget.held == 0
    assert [at_once(budget) is not None for _ in range(3)] == [True, True, False]
    assert budget.held == 400


@pytest.mark.parametrize("limit, is_there", [(210, True), (209, False)])
def test_batch_that_is_larger_than_the_largest_message_needs_its_own_room(
    limit: int, *, is_there: bool
) -> None:
    """Twice: for a moment both the client and we hold it."""
    budget = ReadAheadBudget(limit, 10, most=2000, batch=100)
    turn = at_once(budget)
    assert turn is not None
    assert turn.more(5) is is_there
    assert budget.held == (2 * 5 + 2 * 100 if is_there else 20)


def test_only_a_message_that_is_larger_than_the_largest_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not several that are as large together; and a null has no bytes."""
    budget = ReadAheadBudget(1000, 10, most=2000, batch=1)
    many = delivery(10, 10, 1)
    many.messages[2].value = None
    turn = at_once(budget)
    assert turn is not None
    turn.end([many])
    turn.end([])  # once more is nothing
    assert not caplog.records
    assert budget.held == 21


@pytest.mark.parametrize("seed", range(20))
def test_room_is_never_exceeded(seed: int) -> None:
    """Whatever comes and goes, of any partition, as long as no message is larger than expected."""
    draw = random.Random(seed)
    partitions, largest = draw.randrange(1, 30), draw.randrange(1, 5 * MIB)
    limit = (partitions + COPIES) * largest + draw.randrange(20 * MIB)
    budget = ReadAheadBudget(limit, largest, most=2000, batch=MIB // draw.randrange(1, 9))
    budget.partitions = partitions
    buffers = [0] * partitions
    for n in range(partitions):
        budget.queue_of(n)
    receiving: dict[int, LimitedTurn] = {}
    came = 0
    for _ in range(2000):
        n = draw.randrange(partitions)
        if n in receiving:
            size = draw.choice([0, draw.randrange(largest + 1)])
            receiving.pop(n).end([delivery(size)])
            buffers[n] += size
            budget.buffered(n, buffers[n], arrived=size)
            came += size > 0
        elif draw.random() < 0.5:
            buffers[n] = draw.randrange(buffers[n] + 1)  # some of it was fetched
            budget.buffered(n, buffers[n])
        elif buffers[n] < budget.share and (turn := at_once(budget)) is not None:
            receiving[n] = turn
            turn.more(draw.randrange(largest + 1))
        assert budget.held <= limit
    assert came > 10


def test_what_is_fetched_makes_room_for_who_waits() -> None:
    """It does not have to ask again."""
    budget = ReadAheadBudget(4 * MIB, MIB, most=10, batch=MIB)
    budget.queue_of("a")
    turn = at_once(budget)
    assert turn is not None
    turn.end([delivery(2 * MIB)])
    budget.buffered("a", 2 * MIB, arrived=2 * MIB)
    assert at_once(budget) is None
    found: list[LimitedTurn | None] = []
    waiting = threading.Thread(target=lambda: found.append(budget.enter(lambda: False)))
    waiting.start()
    budget.buffered("a", 0)
    waiting.join(300)
    assert [type(turn) for turn in found] == [LimitedTurn]


def test_who_ends_a_turn_goes_behind_those_who_wait() -> None:
    """It would be in again before they wake: of many partitions, one alone would be received."""
    budget = ReadAheadBudget(3 * MIB, MIB, most=10, batch=MIB)
    budget.queue_of("a")
    turn = at_once(budget)
    assert turn is not None
    assert at_once(budget) is None
    found: list[LimitedTurn | None] = []
    for _ in range(100):
        waiting = threading.Thread(target=lambda: found.append(budget.enter(lambda: False)))
        waiting.start()
        while not budget._line:
            pass
        turn.end([])
        assert at_once(budget) is None
        waiting.join(300)
        last = found.pop()
        assert last is not None
        turn = last


def test_turn_that_leaves_room_for_no_other_is_short() -> None:
    """One that has nothing would hold all others up."""
    budget = ReadAheadBudget(5 * MIB, MIB, most=10, batch=MIB)
    budget.partitions = 2
    first, last = at_once(budget), at_once(budget)
    assert first is not None
    assert last is not None
    assert at_once(budget) is None
    assert (first.poll, last.poll) == (POLL, SHORT_POLL)
    assert [first.pause(n) for n in (1, 2, 100)] == [0.0] * 3
    assert [last.pause(n) for n in (0, 1, 2, 3, 7, 8, 5000)] == [
        0,
        0,
        0.002,
        0.004,
        0.064,
        0.1,
        0.1,
    ]


def test_partition_that_shares_with_nobody_waits_where_it_is() -> None:
    """Nobody is held up, and its next message is received at once."""
    budget = ReadAheadBudget(3 * MIB, MIB, most=10, batch=MIB)
    budget.queue_of("a")
    turn = at_once(budget)
    assert turn is not None
    assert (turn.poll, turn.pause(100)) == (POLL, 0.0)


@pytest.mark.parametrize(
    "free, first, has_room",
    [(2 * MIB, 0, True), (3 * MIB, MIB // 2, True), (3 * MIB, MIB // 2 + 1, False)],
)
def test_batch_uses_what_the_first_message_left(free: int, first: int, *, has_room: bool) -> None:
    """Most are small, and the first has room for two of the largest."""
    budget = ReadAheadBudget(MIB + free, MIB, most=1, batch=MIB // 2)
    budget.queue_of("a")
    turn = at_once(budget)
    assert turn is not None
    assert turn.more(first) is has_room
    assert budget.held == 3 * MIB + (2 * first if has_room else 0)
    turn.end([])
    assert budget.held == MIB


async def test_partition_that_is_idle_stays_away_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is busy can receive meanwhile."""
    client = Client()
    subscriber = subscriber_on(client, TOPIC, memory_limit=4 * MIB, max_message_size=MIB)
    budget = subscriber._budget
    assert budget is not None
    pauses: list[tuple[float, int]] = []
    monkeypatch.setattr(pump, "sleep", lambda seconds: pauses.append((seconds, budget.held)))
    budget.partitions = 2
    await _begin(subscriber)
    await until(lambda: len(pauses) > 7)
    queue = MIB
    assert pauses[:7] == [(n / 1000, queue) for n in (2, 4, 8, 16, 32, 64, 100)]
    put(client.made[TOPIC][0], 1)
    await until(lambda: subscriber.has_run)
    await until(lambda: (0.002, queue + 1) in pauses)
    await subscriber.unsubscribe_natively()


def test_message_that_is_larger_than_expected_is_said_and_counts_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It can break the limit, and must not end everything."""
    caplog.set_level(logging.WARNING, "consumer_sdk.adapters.pulsar.consumer.read_ahead_budget")
    budget = ReadAheadBudget(8 * MIB, MIB, most=2000, batch=MIB)
    assert budget.queue_of("a") == 4
    turn = at_once(budget)
    assert turn is not None
    turn.end([delivery(2 * MIB)])
    assert "a message has 2097152 bytes, and max_message_size=1048576" in caplog.text
    budget.buffered("a", 0, arrived=2 * MIB)
    assert budget.queue_of("a") == 2


@pytest.mark.parametrize("size", [2, 50, 5000])
def test_message_that_is_larger_than_expected_leaves_the_queues_that_are_there(size: int) -> None:
    """They hold what they held before: one message in chunks would take all the room for good."""
    budget = ReadAheadBudget(64 * MIB, MIB, most=2000, batch=MIB)
    budget.partitions = 4
    assert [budget.queue_of(n) for n in range(4)] == [8] * 4
    turn = at_once(budget)
    assert turn is not None
    turn.end([delivery(size * 1000 * 1000)])
    budget.buffered(0, 0, arrived=size * 1000 * 1000)
    assert budget.held == 32 * MIB
    assert budget.share == 8 * MIB
    assert [at_once(budget) is not None for _ in range(2)] == [True] * 2
    budget.queue_of(0)  # is made anew
    assert budget.held <= 64 * MIB


@pytest.mark.parametrize("at_a_time", [1, 3, 9])
def test_partitions_that_come_later_leave_half_of_the_room(at_a_time: int) -> None:
    """The queues that are there cannot be made shorter: those that come get what is left of their half."""
    budget = ReadAheadBudget(100 * MIB, MIB, most=2000, batch=MIB)
    assert budget.queue_of(0) == 50
    for first in range(1, 10, at_a_time):
        budget.partitions = first + at_a_time
        budget.check()
        assert [budget.queue_of(n) for n in range(first, first + at_a_time)] == [1] * at_a_time
    assert budget.held == 59 * MIB
    assert budget.queue_of(0) == 5  # is made anew


def test_partitions_that_come_later_and_break_the_limit_are_refused() -> None:
    """There would be room for all of them if they shared it anew."""
    budget = ReadAheadBudget(100 * MIB, MIB, most=2000, batch=MIB)
    budget.queue_of(0)
    budget.partitions = 49
    budget.check()
    budget.partitions = 50
    with pytest.raises(ConfigurationError, match=r"fewer than 50: 105906176 bytes .* start the"):
        budget.check()
    budget.no_queue(0)
    budget.check()


async def test_partitions_that_do_not_fit_are_refused_at_the_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error tells how much is needed."""
    names = [f"t{n}" for n in range(20)]
    adapter = adapter_on(Client(), monkeypatch, *names, memory_limit=100 * MIB)
    with pytest.raises(ConfigurationError, match=r"20 partitions .* need 115343360 bytes"):
        await adapter.open(Owner())


def put(native: Native, *sizes: int) -> None:
    """Messages of these sizes come."""
    for size in sizes:
        builder = _pulsar.MessageBuilder()
        builder.content(bytes(size))
        native.queue.put(builder.build())


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for it."""
    async with asyncio.timeout(300):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_partition_that_is_paused_counts_and_holds_nobody_up() -> None:
    """Others go on, one message at a time."""
    client = Client()
    subscriber = subscriber_on(client, TOPIC, memory_limit=4 * MIB, max_message_size=MIB)
    budget = subscriber._budget
    assert budget is not None
    await _begin(subscriber)
    put(client.made[TOPIC][0], MIB)
    await until(lambda: subscriber.has_run)
    queue = 2 * MIB
    assert at_once(budget) is None
    subscriber.pause(is_paused=True)
    await until(lambda: budget.held == queue + MIB)
    turn = await asyncio.to_thread(budget.enter, lambda: False)  # behind the partition itself
    assert turn is not None
    assert at_once(budget) is None
    turn.end([delivery(MIB)])
    budget.buffered("other", MIB, arrived=MIB)
    assert at_once(budget) is None
    budget.buffered("other", 0)
    subscriber.pause(is_paused=False)
    assert at_once(budget) is None
    subscriber.take(10, 10 * MIB)
    await subscriber.leave()
    await until(lambda: budget.held == 0)


async def _begin(subscriber: Subscriber) -> None:
    await subscriber.subscribe()
    subscriber.offer()
    await begin(subscriber, StartPoint.BROKER)


async def test_what_comes_of_a_consumer_that_was_replaced_makes_room() -> None:
    """It is dropped: the broker sends it again."""
    client = Client()
    subscriber = subscriber_on(client, TOPIC, memory_limit=4 * MIB, max_message_size=MIB)
    budget = subscriber._budget
    assert budget is not None
    await _begin(subscriber)
    put(client.made[TOPIC][0], *[MIB // 2] * 3)
    for _ in range(3):
        await subscriber.subscribe()
    subscriber.end()
    await subscriber.leave()
    await until(lambda: budget.held == 0)


async def test_place_of_a_queue_is_kept_while_its_consumer_is_made_anew() -> None:
    """Another partition would take it meanwhile."""
    client = Client()
    subscriber = subscriber_on(client, TOPIC, memory_limit=8 * MIB, max_message_size=MIB)
    budget = subscriber._budget
    assert budget is not None
    await _begin(subscriber)
    await subscriber.unsubscribe_natively()
    assert budget.queue_of("another") == 1
    await subscriber.subscribe()
    assert budget._queues == {subscriber: 3 * MIB, "another": MIB}
    await subscriber.leave()
    await until(lambda: budget.held == MIB)


async def test_delivery_that_raises_is_not_in_hand_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All others would have less room for good."""
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
    client = Client()
    subscriber = subscriber_on(client, TOPIC, memory_limit=8 * MIB, max_message_size=MIB)
    budget = subscriber._budget
    assert budget is not None
    await _begin(subscriber)
    monkeypatch.setattr(subscriber._buffer, "add", None)
    put(client.made[TOPIC][0], MIB)
    await until(lambda: bool(caught))
    await subscriber.leave()
    await until(lambda: budget.held == 0)


def test_size_that_cannot_be_said_is_counted() -> None:
    """A handler of the log may raise."""
    budget = ReadAheadBudget(8 * MIB, MIB, most=2000, batch=MIB)
    turn = at_once(budget)
    assert turn is not None
    with pytest.raises(AttributeError):
        turn.end([Delivery([None], 3 * MIB, [(0, 0, 0)], [None])])  # type: ignore[list-item] # no message
    assert budget.held == 3 * MIB
