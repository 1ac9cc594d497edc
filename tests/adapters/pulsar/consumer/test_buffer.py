"""What was received and not fetched yet."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.pulsar.consumer.buffer import Buffer
from consumer_sdk.adapters.pulsar.consumer.messages import (
    Delivery,
    NativeMessage,
    ascending,
    cuts_of,
)
from consumer_sdk.records import Assignment, Message, Outcome, OutcomeKind, Partition
from consumer_sdk.trackers import WatermarkTracker

HELD = Assignment(Partition("t", "-1"), 1)


def delivery(*entries: int) -> Delivery:
    """A message of each entry, ten bytes long."""
    messages: list[Message] = []
    for entry in entries:
        message = NativeMessage.make(HELD, (1, entry, 0), b"0123456789")
        assert isinstance(message, NativeMessage)
        message.raw, message.handle = None, entry
        messages.append(message)
    places = [message.position for message in messages]
    return Delivery(messages, 10 * len(messages), places, [message.native for message in messages])


def receive(buffer: Buffer, *entries: int) -> None:
    """They come at once."""
    whole = delivery(*entries)
    for part in ascending(whole, cuts_of(whole.positions, range(1, len(entries)))):
        buffer.add(part)


def entries_of(messages: list[Message]) -> list[int]:
    """Where they are."""
    return [message.position[1] for message in messages]


def test_run_ends_where_the_broker_begins_again() -> None:
    """Between two deliveries, and in the middle of one."""
    buffer = Buffer()
    receive(buffer, 5, 6, 7)
    receive(buffer, 8, 3, 4, 5)
    receive(buffer, 6, 7)
    assert (buffer.count, buffer.size) == (9, 90)
    runs = [buffer.take(HELD, 100, 1 << 20) for _ in range(2)]
    assert [entries_of(run.messages) for run in runs] == [[5, 6, 7, 8], [3, 4, 5, 6, 7]]
    assert all(run.ascends for run in runs)
    assert (buffer.count, buffer.size, buffer.first) == (0, 0, None)


@pytest.mark.parametrize(
    "most, size, taken",
    [(5, 1, 1), (5, 10, 1), (5, 11, 2), (5, 20, 2), (1, 99, 1), (2, 99, 2), (3, 99, 3), (5, 99, 4)],
)
def test_run_ends_at_the_first_limit_that_is_reached(most: int, size: int, taken: int) -> None:
    """The limit of bytes is soft: one message at least, and a delivery that was begun goes on."""
    buffer = Buffer()
    for entry in range(2):
        receive(buffer, entry)
    receive(buffer, 2, 3)
    run = buffer.take(HELD, most, size)
    assert (entries_of(run.messages), run.size) == (list(range(taken)), 10 * taken)
    assert (buffer.count, buffer.size) == (4 - taken, 40 - 10 * taken)
    assert buffer.take(HELD, 0, 99).messages == []


def test_run_has_assignment_place_and_native_of_each_message() -> None:
    """Also where a delivery is cut; they are what is acked."""
    buffer, other = Buffer(), Assignment(Partition("t", "-1"), 2)
    receive(buffer, 3, 5, 6)
    receive(buffer, 8, 9)
    for taken in ([3, 5], [6, 8, 9]):
        run = buffer.take(other, len(taken), 1 << 20)
        assert entries_of(run.messages) == taken
        assert run.known_positions == [(1, entry, 0) for entry in taken]
        assert run.known_natives == taken
        assert all(message.assignment is other for message in run.messages)


def test_buffer_that_was_cleared_has_nothing_of_before() -> None:
    """The broker sends all of it again."""
    buffer = Buffer()
    receive(buffer, 1, 2)
    buffer.clear()
    assert (buffer.count, buffer.size, buffer.first) == (0, 0, None)
    receive(buffer, 1)
    assert (buffer.count, buffer.size) == (1, 10)
    assert entries_of(buffer.take(HELD, 9, 99).messages) == [1]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=20),
)
def test_runs_give_all_in_order_and_ascend(given_: list[list[int]], limits: list[int]) -> None:
    """Whatever comes, and however it is cut."""
    buffer, found = Buffer(), list[int]()
    for entries in given_:
        receive(buffer, *entries)
    for turn in range(100):
        run = buffer.take(HELD, limits[turn % len(limits)], 35)
        taken = entries_of(run.messages)
        assert all(one < other for one, other in pairwise(taken))
        assert len(taken) <= limits[turn % len(limits)]
        found += taken
    assert found == [entry for entries in given_ for entry in entries]
    assert (buffer.count, buffer.size) == (0, 0)


def test_reconnects_while_records_wait_ack_nothing_that_nobody_settled() -> None:
    """Pulsar trap 5: what lies in the buffer comes again behind it; nothing is acked by itself."""
    for seed in range(40):
        _reconnect(random.Random(seed))


def _reconnect(chance: random.Random) -> None:
    tracker = WatermarkTracker(HELD, names_settled=True)
    buffer, sent, handed = Buffer(), 0, list[int]()
    for _ in range(60):
        event = chance.random()
        if event < 0.5:
            count = chance.randint(1, 300)
            receive(buffer, *range(sent, sent + count))
            sent += count
        elif event < 0.6:
            sent = 0
        else:
            run = buffer.take(HELD, 500, 1 << 30)
            tracked = tracker.track(run, 0.0)
            gone = {*tracked.dropped, *tracked.known}
            handed += [e for at, e in enumerate(entries_of(run.messages)) if at not in gone]
        flush = tracker.flush(1000.0, 1000.0, force=True)
        if flush is not None:
            assert not flush.settled
            tracker.flushed(flush, Outcome(OutcomeKind.SENT))
    assert handed == list(range(len(handed)))
