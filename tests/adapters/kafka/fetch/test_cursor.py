"""How far fetched bytes reach, by the heads of their batches; and what is left of them while they are read."""

from __future__ import annotations

import struct

import pytest
from aiokafka import TopicPartition
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from consumer_sdk.adapters.kafka.decoding.unpacking import AHEAD
from consumer_sdk.adapters.kafka.fetch.cursor import OVERHEAD, Chunk, Cursor, Fault, Reach, reach_of
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch, rebase

GZIP = 1
HEAD_OF_A_BATCH = 61
EPOCH_AT = 12


def records(first: int, last: int, codec: int = 0, *, transaction: bool = False) -> bytes:
    """A batch of these offsets."""
    return batch(rows(first, last + 1), codec, transaction=transaction)


def of_epoch(data: bytes, epoch: int) -> bytes:
    """A batch that another leader has written."""
    return data[:EPOCH_AT] + struct.pack(">i", epoch) + data[EPOCH_AT + 4 :]


def messages(*offsets: int, magic: int = 1, codec: int = 0) -> bytes:
    """What brokers before 0.11 have stored; compressed, they are one message with the last one's offset."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in offsets:
        builder.append(offset, 5, None, b"v" * 30)
    built = bytes(builder.build())
    return rebase(built, offsets[-1]) if codec else built


REACHES: dict[str, tuple[bytes, Reach]] = {
    "a batch": (records(7, 9), Reach(10, -1, is_compressed=False)),
    "two with a gap": (records(7, 8) + records(20, 24), Reach(25, -1, is_compressed=False)),
    "two leaders'": (
        of_epoch(records(3, 3), 8) + of_epoch(records(4, 4), 9),
        Reach(5, 9, is_compressed=False),
    ),
    "compressed": (records(1, 2, GZIP), Reach(3, -1, is_compressed=True)),
    "compressed, then not": (records(1, 2, GZIP) + records(3, 3), Reach(4, -1, is_compressed=True)),
    "not, then compressed": (records(1, 2) + records(3, 3, GZIP), Reach(4, -1, is_compressed=True)),
    "a transaction's": (
        records(1, 2, transaction=True),
        Reach(3, -1, is_compressed=False, is_transactional=True),
    ),
    "a transaction's, then another": (
        records(1, 2, GZIP, transaction=True) + records(3, 3),
        Reach(4, -1, is_compressed=True, is_transactional=True),
    ),
    "messages": (messages(5, 6, 7), Reach(8, -1, is_compressed=False)),
    "messages without times": (messages(5, 6, 7, magic=0), Reach(8, -1, is_compressed=False)),
    "compressed messages": (messages(7, codec=GZIP), Reach(8, -1, is_compressed=True)),
    "messages, then a batch": (
        messages(5) + of_epoch(records(6, 9), 2),
        Reach(10, 2, is_compressed=False),
    ),
    "compressed messages, then a batch": (
        messages(5, codec=GZIP) + records(6, 9),
        Reach(10, -1, is_compressed=True),
    ),
}


@pytest.mark.parametrize("case", REACHES)
def test_reach_is_behind_the_last_batch(case: str) -> None:
    """The next request asks for what comes there: further would lose records."""
    data, reach = REACHES[case]
    assert reach_of(data) == reach


@pytest.mark.parametrize("cut", [1, 40, HEAD_OF_A_BATCH, HEAD_OF_A_BATCH + 5])
def test_batch_that_is_cut_off_does_not_count(cut: int) -> None:
    """A broker sends as many bytes as were asked for; the next answer begins with that batch."""
    whole, other = records(0, 4), records(5, 9)
    assert reach_of(whole + other[:cut]) == reach_of(whole)
    assert reach_of(whole + other[:-1]) == reach_of(whole)
    assert reach_of(other[:cut]) is None


def test_bytes_without_a_batch_reach_nowhere() -> None:
    """Such as a batch that is larger than what was asked for."""
    assert reach_of(b"") is None
    assert reach_of(b"\0" * 100) is None


@pytest.mark.parametrize(
    "data, short",
    [(records(2, 2), HEAD_OF_A_BATCH - 12 - 1), (messages(2), 13), (messages(2, magic=0), 13)],
    ids=["batch", "message", "message without a time"],
)
def test_length_that_no_batch_has_ends_the_walk(data: bytes, short: int) -> None:
    """It is damaged; what is behind it may be anything."""
    damaged = data[:8] + struct.pack(">i", short) + data[12:]
    assert reach_of(damaged + records(3, 4)) is None
    assert reach_of(records(0, 1) + damaged + records(3, 4)) == reach_of(records(0, 1))


def test_shortest_batch_and_message_are_read() -> None:
    """A batch that compaction has emptied is its head; a message may have neither key nor value."""
    empty = records(2, 4)[:HEAD_OF_A_BATCH]
    emptied = empty[:8] + struct.pack(">i", HEAD_OF_A_BATCH - 12) + empty[12:]
    assert reach_of(emptied) == Reach(5, -1, is_compressed=False)
    builder = LegacyRecordBatchBuilder(0, 0, 1 << 20)
    builder.append(3, None, None, None)
    assert reach_of(bytes(builder.build())) == Reach(4, -1, is_compressed=False)


def chunk(position: int, end: int, highwater: int, size: int = 488) -> Chunk:
    """One whose batches end there."""
    return Chunk(bytes(size), position, Reach(end, 0, is_compressed=False), highwater=highwater)


@pytest.mark.parametrize(
    "position, end, highwater, is_sure",
    [
        (5, 6, 6, True),
        (5, 6, 5, True),  # the high watermark of the answer is older than its records
        (5, 6 + AHEAD, 6, True),
        (5, 7 + AHEAD, 6, False),
        (5, 5, 9, False),
        (6, 5, 9, False),
    ],
)
def test_end_that_the_log_cannot_have_is_not_asked_for(
    position: int,
    end: int,
    highwater: int,
    is_sure: bool,  # noqa: FBT001 - a parameter
) -> None:
    """One bit of a head leads to where no record is, or back."""
    assert chunk(position, end, highwater).is_sure is is_sure


def test_chunk_takes_its_bytes_and_what_is_kept_beside_them() -> None:
    """A partition of small answers must not take more memory than was allowed."""
    made = chunk(10, 20, 20, size=1000)
    assert made.size == 1000 + OVERHEAD
    assert (made.position, made.end, made.epoch, made.highwater) == (10, 20, 0, 20)


@pytest.mark.parametrize(
    "position, left", [(0, 1000), (10, 1000), (15, 500), (19, 100), (20, 0), (99, 0)]
)
def test_what_is_left_of_a_chunk_falls_as_it_is_read(position: int, left: int) -> None:
    """By its offsets: nobody knows how long each record is."""
    assert chunk(10, 20, 20).size == 1000
    assert chunk(10, 20, 20).left(position) == left


@pytest.mark.parametrize("end", [10, 3])
def test_chunk_of_no_offsets_is_left_whole(end: int) -> None:
    """It is damaged, and kept until it was looked at."""
    assert chunk(10, end, 20).left(10) == 1000


def test_chunk_of_one_offset_is_left_until_it_is_read() -> None:
    """Then nothing is."""
    assert chunk(10, 11, 20).left(10) == 1000
    assert chunk(10, 11, 20).left(11) == 0


# -- a cursor --------------------------------------------------------------------------------------

FAULT = Fault(ValueError("fault"))


class Watched:
    """A cursor at offset 10, and how often it was said that it may have to be asked for."""

    def __init__(self, *queue: Chunk | Fault) -> None:
        self.changes = 0
        self.cursor = Cursor(TopicPartition("t", 3), b"1" * 16)
        self.cursor.changed = self._note
        self.cursor.seek(10)
        for item in queue:
            self.cursor.put(item)
        self.changes = 0

    def _note(self) -> None:
        self.changes += 1


def reaching(position: int, end: int, epoch: int = 0) -> Chunk:
    """A chunk of 1 000 bytes in all."""
    return Chunk(bytes(488), position, Reach(end, epoch, is_compressed=False), highwater=end)


def test_new_cursor_is_nowhere_and_asks_for_nothing() -> None:
    """Until whoever holds the partition has said where to begin."""
    cursor = Cursor(TopicPartition("t", 3))
    assert repr(cursor) == "<Cursor t[3] at -1, paused, 0 buffered>"
    assert (cursor.topic_id, cursor.last_epoch, cursor.held, cursor.buffered) == (None, -1, 0, 0)
    is_any = [cursor.is_asked, cursor.is_idle, cursor.has_lost_past, cursor.is_closed]
    assert not any(is_any)
    assert (cursor.aside_at, cursor.node, cursor.replica) == (0.0, None, None)
    assert (cursor.past_end, cursor.missing, cursor.continues_at(0)) == (-1, -1, False)
    cursor.close()  # says nothing to anybody


def test_cursor_says_where_it_is() -> None:
    """And what it does."""
    cursor = Watched(reaching(10, 12)).cursor
    cursor.resume()
    assert repr(cursor) == "<Cursor t[3] at 10, open, 1 buffered>"
    cursor.close()
    assert repr(cursor) == "<Cursor t[3] at 10, closed, 0 buffered>"


def test_pause_keeps_what_was_fetched_and_resume_has_it_asked_for_at_once() -> None:
    """Also aside."""
    watched = Watched(reaching(10, 12))
    cursor = watched.cursor
    cursor.aside_at = 5.0
    cursor.pause()
    assert (cursor.paused, len(cursor.queue), watched.changes) == (True, 1, 0)
    cursor.resume()
    assert (cursor.paused, cursor.aside_at, watched.changes) == (False, 0.0, 1)


@pytest.mark.parametrize("is_sought", [True, False])
def test_what_was_fetched_is_forgotten_by_a_seek_and_a_rewind(*, is_sought: bool) -> None:
    """Of another place nobody knows which leader has written it."""
    watched = Watched(reaching(10, 12, 5))
    cursor = watched.cursor
    ask = cursor.ask(3, 1000)
    cursor.consumed_to(11)
    cursor.is_idle, cursor.aside_at = True, 5.0
    cursor.seek(30) if is_sought else cursor.rewind()
    assert (cursor.position, cursor.last_epoch) == ((30, -1) if is_sought else (11, 5))
    assert (cursor.front, cursor.held, cursor.is_asked) == (None, 0, False)
    assert (cursor.is_idle, cursor.aside_at, watched.changes) == (False, 0.0, 1)
    assert not cursor.answered(ask)


def test_closed_cursor_keeps_nothing_and_tells_nobody() -> None:
    """No answer counts any more."""
    watched = Watched(reaching(10, 12))
    cursor = watched.cursor
    ask = cursor.ask(3, 1000)
    cursor.close()
    assert (cursor.is_closed, cursor.paused, cursor.front, cursor.held) == (True, True, None, 0)
    assert not cursor.answered(ask)
    cursor.rewind()
    assert watched.changes == 0


def test_epoch_is_the_highest_of_what_was_read() -> None:
    """A fault has none."""
    cursor = Watched(reaching(10, 12, 5), reaching(12, 14, 4), FAULT).cursor
    for position, epoch in ((12, 5), (14, 5), (15, 5)):
        cursor.consumed_to(position)
        assert (cursor.position, cursor.last_epoch) == (position, epoch)
        cursor.advance()
    cursor.consumed_to(16)
    assert cursor.position == 16


def test_bytes_are_those_of_the_chunks_that_are_held() -> None:
    """A fault takes none."""
    cursor = Watched(reaching(10, 20), reaching(20, 30), FAULT).cursor
    assert (cursor.held, cursor.buffered) == (2000, 2000)
    cursor.consumed_to(15)
    assert (cursor.held, cursor.buffered) == (2000, 1500)
    cursor.advance()
    assert (cursor.held, cursor.buffered) == (1000, 1000)
    cursor.advance()
    assert (cursor.front, cursor.held, cursor.buffered) == (FAULT, 0, 0)
    cursor.advance()
    assert (cursor.front, cursor.held) == (None, 0)


@pytest.mark.parametrize(
    "queue, enough, is_wanted",
    [
        ([], 1, True),
        ([reaching(10, 20)], 1001, True),
        ([reaching(10, 20)], 1000, False),
        ([reaching(10, 20), reaching(20, 30)], 2000, False),
        ([reaching(10, 20), reaching(20, 30)], 2001, True),
        ([reaching(10, 20), reaching(20, 30), reaching(30, 30)], 9000, False),
        ([reaching(10, 10), reaching(10, 20), reaching(20, 30)], 9000, True),
        ([FAULT], 9000, False),
        ([reaching(10, 20), FAULT], 9000, False),
        ([reaching(10, 20), reaching(20, 30), FAULT], 9000, False),
    ],
)
def test_more_is_wanted_while_there_is_not_enough_and_the_end_is_sure(
    queue: list[Chunk | Fault], enough: int, *, is_wanted: bool
) -> None:
    """Nothing is asked for behind a fault, nor behind an end that may be wrong."""
    assert Watched(*queue).cursor.wants(enough) is is_wanted


@pytest.mark.parametrize("position, is_wanted", [(15, False), (16, True)])
def test_what_is_read_already_of_a_chunk_is_not_enough_of_it(
    position: int, *, is_wanted: bool
) -> None:
    """The next request leaves before the last record is handed out."""
    cursor = Watched(reaching(10, 20)).cursor
    cursor.consumed_to(position)
    assert cursor.wants(500) is is_wanted


@pytest.mark.parametrize(
    "queue, offset, epoch",
    [
        ([], 10, -1),
        ([reaching(10, 20, 5)], 20, 5),
        ([reaching(10, 20, 5), reaching(20, 30, 6), reaching(30, 40, 7)], 40, 7),
        ([FAULT], 10, -1),
    ],
)
def test_next_request_asks_for_what_lies_behind_the_buffer(
    queue: list[Chunk | Fault], offset: int, epoch: int
) -> None:
    """Its answer counts once."""
    cursor = Watched(*queue).cursor
    ask = cursor.ask(8, 4000)
    assert (ask.topic_id, ask.leader_epoch, ask.max_bytes) == (b"1" * 16, 8, 4000)
    assert (ask.offset, ask.last_epoch, cursor.is_asked) == (offset, epoch, True)
    assert cursor.answered(ask)
    assert not cursor.is_asked
    assert not cursor.answered(ask)


def test_answer_to_an_earlier_request_does_not_count() -> None:
    """Nor one that is to be disregarded."""
    cursor = Watched().cursor
    first, second = cursor.ask(8, 4000), cursor.ask(8, 4000)
    assert (cursor.answered(first), cursor.is_asked) == (False, True)
    cursor.disregard()
    assert (cursor.answered(second), cursor.is_asked) == (False, False)


def test_epoch_that_was_read_is_asked_with_though_the_buffer_is_of_an_older_one() -> None:
    """The broker would find the log of the older one truncated."""
    cursor = Watched(reaching(10, 20, 4)).cursor
    cursor.last_epoch = 5
    assert cursor.ask(8, 4000).last_epoch == 5


def test_batch_has_ended_where_one_was_read_to_its_end_or_is_buffered_to_it() -> None:
    """Not where a chunk was left before its end, nor where one brought nothing."""
    cursor = Watched(reaching(10, 20), reaching(20, 30), reaching(30, 40)).cursor
    assert [at for at in range(50) if cursor.continues_at(at)] == [40]
    cursor.consumed_to(15)
    cursor.advance()
    cursor.consumed_to(30)
    assert [at for at in range(50) if cursor.continues_at(at)] == [40]
    cursor.advance()
    assert [at for at in range(50) if cursor.continues_at(at)] == [30, 40]
    cursor.advance()
    assert [at for at in range(50) if cursor.continues_at(at)] == [30]
    cursor.put(FAULT)
    assert [at for at in range(50) if cursor.continues_at(at)] == [30]
    cursor.advance()
    cursor.seek(45)
    cursor.put(reaching(45, 45))
    cursor.advance()
    assert [at for at in range(50) if cursor.continues_at(at)] == [30]
