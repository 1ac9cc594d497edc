"""The broker's side of a subscription: who is sent what, and what an ack settles."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from consumer_sdk.testing.memory.log import PartitionLog, StoredRecord
from consumer_sdk.testing.memory.subscription import Connection, Cursor, CursorKind, Sent


def nothing() -> None:
    """Nobody listens."""


class Field:
    """A log, a cursor on it, and the consumers that were connected."""

    def __init__(
        self, kind: CursorKind = "shared", *, keeps_indexes: bool = False, prefetch: int = 1000
    ) -> None:
        self.log = PartitionLog()
        self.acked: list[int] = []
        self.cursor = Cursor(self.log, kind, keeps_indexes=keeps_indexes, acked=self.acked.append)
        self._prefetch = prefetch

    def append(self, count: int, *, key: bytes | None = None, is_entry: bool = False) -> None:
        """Stores ``count`` records, each an entry of its own or all in one."""
        self.log.append([StoredRecord(key, b"v", (), 0)] * count, is_entry=is_entry)

    def connect(self) -> Connection:
        """One more consumer."""
        connection = Connection(nothing, self._prefetch)
        self.cursor.connect(connection)
        return connection

    def take(self, connection: Connection, most: int = 1000) -> list[Sent]:
        """What a consumer was sent."""
        return self.cursor.take(connection, most, 1 << 20)

    def ack(self, sent: Sequence[Sent]) -> None:
        """With their handles."""
        self.cursor.ack([each.handle for each in sent])


def positions(sent: Sequence[Sent]) -> list[int]:
    """Where they are stored."""
    return [each.position for each in sent]


def test_shared_records_take_turns() -> None:
    """Each goes to one consumer; what one has not seen is not settled."""
    field = Field()
    first, second = field.connect(), field.connect()
    field.append(5)
    assert positions(field.take(first)) == [0, 2, 4]
    got = field.take(second)
    assert positions(got) == [1, 3]
    field.ack(got)
    assert [at for at in range(5) if field.cursor.is_settled(at)] == [1, 3]
    assert (field.cursor.backlog, field.cursor.lowest) == (3, 0)


def test_disconnected_consumer_s_records_go_to_others_lowest_first() -> None:
    """Also those that it never took; before anything new."""
    field = Field(prefetch=4)
    first, second = field.connect(), field.connect()
    field.append(20)
    assert positions(field.take(first, 1)) == [0]
    field.cursor.disconnect(first)
    assert positions(field.take(second))[:4] == [1, 3, 5, 7]
    assert positions(field.take(second)) == [0, 2, 4, 6]
    assert positions(field.take(second)) == [8, 9, 10, 11]


def test_key_stays_with_its_consumer_while_one_of_it_is_unacked() -> None:
    """Key_shared: the order of a key is kept between reconnects."""
    field = Field("key_shared")
    first, second = field.connect(), field.connect()
    for key in (b"a", b"b", b"a", b"a", None, b"b"):
        field.append(1, key=key)
    mine, yours = field.take(first), field.take(second)
    assert (positions(mine), positions(yours)) == ([0, 2, 3, 4], [1, 5])
    field.ack(mine)
    field.append(1, key=b"a")
    field.append(1, key=b"c")
    assert (positions(field.take(second)), positions(field.take(first))) == ([6], [7])


def test_key_waits_for_its_consumer_to_have_room() -> None:
    """It is not sent to another one meanwhile."""
    field = Field("key_shared", prefetch=1)
    first, second = field.connect(), field.connect()
    field.append(3, key=b"a")
    assert (positions(field.take(first)), positions(field.take(second))) == ([0], [])
    assert (positions(field.take(first)), positions(field.take(second))) == ([1], [])


def test_second_consumer_of_a_failover_takes_over() -> None:
    """There is one at a time, and it is sent what the other has not acked."""
    field = Field("failover")
    field.append(4)
    first = field.connect()
    got = field.take(first)
    field.ack(got[1:2])
    second = field.connect()
    assert positions(field.take(second)) == [0, 2, 3]
    field.append(1)
    assert field.take(first) == []


def test_handle_of_an_earlier_delivery_acks_nothing() -> None:
    """The record is on its way again: only its newest handle counts."""
    field = Field()
    field.append(2)
    connection = field.connect()
    old = field.take(connection)
    field.ack(old[:1])
    field.cursor.disconnect(connection)
    again = field.take(field.connect())
    assert positions(again) == [1]
    field.ack(old)
    assert field.cursor.backlog == 1
    field.ack(again)
    field.ack(again)
    assert (field.cursor.backlog, field.acked) == (0, [0, 1])


@pytest.mark.parametrize("keeps_indexes,again", [(False, [0, 1, 2]), (True, [1])])
def test_entry_acked_in_part_goes_out_again(*, keeps_indexes: bool, again: list[int]) -> None:
    """Whole, unless acks of its parts are kept; the acks of one delivery settle it."""
    field = Field(keeps_indexes=keeps_indexes)
    field.append(3, is_entry=True)
    connection = field.connect()
    got = field.take(connection)
    field.ack([got[0], got[2]])
    assert [field.cursor.is_settled(at) for at in range(3)] == [
        keeps_indexes,
        False,
        keeps_indexes,
    ]
    field.cursor.disconnect(connection)
    assert field.cursor.backlog == len(again)
    more = field.take(field.connect())
    assert positions(more) == again
    field.ack([got[1]])
    assert field.cursor.backlog == len(again)
    field.ack(more)
    assert field.cursor.backlog == 0


def test_seek_sends_everything_from_there_again() -> None:
    """Exact inside an entry, whose rest goes out again later; old handles are worth nothing."""
    field = Field("failover")
    field.append(1)
    field.append(3, is_entry=True)
    field.append(1)
    connection = field.connect()
    got = field.take(connection)
    field.ack(got[4:])
    field.cursor.seek(2)
    assert positions(field.take(connection)) == [2, 3, 4]
    field.ack(got)
    assert (field.cursor.backlog, field.cursor.lowest) == (4, 1)


def test_records_that_retention_took_are_not_sent_again() -> None:
    """Neither whole entries nor parts of them."""
    field = Field()
    field.append(1)
    field.append(3, is_entry=True)
    field.append(1)
    connection = field.connect()
    field.take(connection)
    field.log.truncate(2)
    field.cursor.disconnect(connection)
    assert positions(field.take(field.connect())) == [2, 3, 4]
    assert field.cursor.lowest == 2


def test_lag_of_a_queue_counts_what_its_group_has_not_settled_and_another_one_what_comes_yet() -> (
    None
):
    """Who has a record does not matter."""
    queue, single = Field(prefetch=2), Field("failover", prefetch=2)
    for field, left in ((queue, 9), (single, 8)):
        first, _second = field.connect(), field.connect()
        field.append(10)
        taken = field.take(first, 2)
        field.ack(taken[:1])
        assert field.cursor.lag(first) == left


@pytest.mark.parametrize("kind", ["failover", "shared", "key_shared"])
@pytest.mark.parametrize("keeps_indexes", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_each_record_is_settled_by_a_valid_ack_and_none_is_lost(
    kind: CursorKind, seed: int, *, keeps_indexes: bool
) -> None:
    """Seeded: connections come and go, handles are used late; in the end the backlog is empty."""
    chance = random.Random(seed)
    field = Field(kind, keeps_indexes=keeps_indexes, prefetch=chance.choice((1, 3, 100)))
    connections: list[Connection] = []
    sent: list[Sent] = []
    for _ in range(150):
        draw = chance.random()
        if draw < 0.3:
            size, key = chance.choice((1, 1, 3)), chance.choice((None, b"a", b"b"))
            field.append(size, key=key, is_entry=True)
        elif draw < 0.4:
            connections.append(field.connect())
        elif draw < 0.5 and connections:
            field.cursor.disconnect(connections.pop(chance.randrange(len(connections))))
        elif draw < 0.75 and connections:
            sent += field.take(chance.choice(connections), chance.choice((1, 10)))
        elif sent:
            field.ack([chance.choice(sent)])
    for connection in connections:
        field.cursor.disconnect(connection)
    last = field.connect()
    while got := field.take(last):
        assert not any(field.cursor.is_settled(at) for at in positions(got))
        field.ack(got)
    assert (field.cursor.backlog, field.cursor.lowest) == (0, field.log.end)
    assert set(field.acked) == set(range(field.log.end))
