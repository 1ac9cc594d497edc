"""How far fetched bytes reach, by the heads of their batches; and what is left of them while they are read."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from consumer_sdk.adapters.kafka.decoding.unpacking import AHEAD
from consumer_sdk.adapters.kafka.fetch.cursor import OVERHEAD, Chunk, Reach, reach_of
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
