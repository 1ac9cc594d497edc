"""What is made of a fetch response: the client's own records say what is right."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException, for_code
from aiokafka.protocol.fetch import FetchResponse_v4, FetchResponse_v7
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.decoding.unpacking import (
    AHEAD,
    Batches,
    Unpacker,
    partition_of,
)
from consumer_sdk.records import Assignment, Message, Partition

ASSIGNMENT = Assignment(Partition("t", "0"), 1)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ANY = 1 << 30

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(
    rows: Sequence[Row], codec: int = 0, producer: int = -1, *, transaction: bool = False
) -> bytes:
    """A record batch; a row is offset, timestamp, key, value, headers."""
    builder = DefaultRecordBatchBuilder(2, codec, transaction, producer, 0, 0, 1 << 20)
    base = rows[0][0]
    for offset, timestamp, key, value, headers in rows:
        builder.append(offset - base, timestamp, key, value, headers)
    return rebase(bytes(builder.build()), base)


def rebase(raw: bytes, base: int) -> bytes:
    """The batch with another base offset; the checksum does not cover it."""
    return struct.pack(">q", base) + raw[8:]


def control(offset: int, producer: int, *, abort: bool) -> bytes:
    """A transaction marker."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, 0, 1 << 20)
    builder.append(0, 1, key, b"\0" * 6, [])
    raw = bytearray(builder.build())
    raw[22] |= 0x20  # the control bit of the attributes
    return with_checksum(rebase(bytes(raw), offset))


def emptied(raw: bytes) -> bytes:
    """What compaction leaves of a batch that says where its producer stands: its head."""
    head = bytearray(raw[:61])
    struct.pack_into(">i", head, 8, 61 - 12)
    struct.pack_into(">i", head, 57, 0)
    return with_checksum(bytes(head))


def with_checksum(raw: bytes) -> bytes:
    """The batch with the checksum that it should have."""
    from aiokafka.record.util import calc_crc32c_py

    return raw[:17] + struct.pack(">I", calc_crc32c_py(raw[21:])) + raw[21:]


def unpacker_of(
    raw: bytes,
    position: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    isolation: int = READ_COMMITTED,
    **options: Any,
) -> Unpacker:
    """An unpacker over a fetch response."""
    is_committed = isolation == READ_COMMITTED
    return Unpacker(Batches(raw, position, aborted, is_committed=is_committed), **options)


def records_of(
    raw: bytes,
    position: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    isolation: int = READ_COMMITTED,
) -> PartitionRecords:
    """The client's own way to read it."""
    return PartitionRecords(
        TopicPartition("t", 0), MemoryRecords(raw), aborted, position, None, None, True, isolation
    )


def drain(unpacker: Unpacker, max_records: int = ANY, max_bytes: int = ANY) -> list[list[Message]]:
    """Everything, as it came from each take."""
    taken = []
    while not unpacker.is_empty:
        messages, size = unpacker.take(ASSIGNMENT, max_records, max_bytes)
        assert size == sum(message.size for message in messages)
        assert len(messages) <= max_records
        taken.append(messages)
    return taken


def flat(taken: Sequence[Sequence[Message]]) -> list[Message]:
    """All takes in one."""
    return [message for messages in taken for message in messages]


def facts(messages: Sequence[Message]) -> list[tuple[Any, ...]]:
    """What can be told from messages, headers as a tuple."""
    return [
        (m.assignment, m.position, m.key, m.value, tuple(m.headers), m.timestamp) for m in messages
    ]


ROWS: list[Row] = [
    (10, 1_000, b"k", b"v", []),
    (11, 1_001, None, b"no key", [("h", b"1"), ("h", None), ("é", b"")]),
    (14, 999, b"tombstone", None, []),
    (15, 1_002, None, None, []),
    (16, 1_003, b"", b"", [("h", b"2")]),
]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
@pytest.mark.parametrize("max_records", [1, 2, 5, 100])
def test_messages_are_those_of_the_batches(codec: int, max_records: int) -> None:
    """Nulls, headers, gaps and timestamps, with every codec and any size of bite."""
    raw = batch(ROWS[:3], codec) + batch(ROWS[3:], codec)
    found = unpacker_of(raw, 10)
    messages = facts(flat(drain(found, max_records)))
    assert messages == [(ASSIGNMENT, o, k, v, tuple(h), t) for o, t, k, v, h in ROWS]
    assert found.next_fetch_offset == 17


row = st.tuples(
    st.integers(0, 3),  # positions skipped before it
    st.integers(0, 2**40),
    st.none() | st.binary(max_size=8),
    st.none() | st.binary(max_size=30),
    st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2),
)


@settings(max_examples=60, deadline=None)  # other programs may hold the machine up
@given(
    st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 20),
)
def test_it_agrees_with_the_client_on_anything(
    batches: list[list[Any]], max_records: int, max_bytes: int, position: int
) -> None:
    """Whatever the batches, the bites and the position that was asked for."""
    raw, offset, ends = b"", 0, []
    for rows in batches:
        placed: list[Row] = []
        for skipped, *rest in rows:
            placed.append((offset + skipped, *rest))
            offset += skipped + 1
        raw += batch(placed)
        ends.append(offset - 1)
    position = min(position, ends[0])  # a broker sends no batch that ends before it
    found, plain = unpacker_of(raw, position), records_of(raw, position)
    assert facts(flat(drain(found, max_records, max_bytes))) == [
        (ASSIGNMENT, r.offset, r.key, r.value, r.headers, r.timestamp) for r in plain
    ]
    assert found.next_fetch_offset == plain.next_fetch_offset


def test_position_asked_for_may_lie_inside_a_batch() -> None:
    """The broker sends whole batches; what lies before the position is not delivered."""
    found = drain(unpacker_of(batch(ROWS), position=12), 2)
    assert [[m.position for m in each] for each in found if each] == [[14, 15], [16]]


def test_bytes_are_a_soft_limit() -> None:
    """The record that passes the limit still comes; the next one waits."""
    rows: list[Row] = [(n, 0, None, b"x" * 40, []) for n in range(5)]
    found = drain(unpacker_of(batch(rows)), max_bytes=80)
    assert [len(each) for each in found if each] == [2, 2, 1]


def test_bytes_are_those_of_all_batches_of_a_take() -> None:
    """Small batches would else add up to many times the limit."""
    rows: list[Row] = [(n, 0, None, b"x" * 40, []) for n in range(6)]
    found = drain(unpacker_of(batch(rows[:2]) + batch(rows[2:])), max_bytes=100)
    assert [len(each) for each in found if each] == [3, 3]


def test_records_without_headers_share_what_they_have_not() -> None:
    """A list for each would be as large as a small record."""
    ((message,),) = drain(unpacker_of(batch([(0, 0, None, b"v", [])])), 1)[:1]
    assert message.headers == ()


@pytest.mark.parametrize(
    "isolation, expected", [(READ_COMMITTED, [0, 5]), (READ_UNCOMMITTED, [0, 1, 2, 5])]
)
def test_aborted_transactions_and_markers_move_the_position_only(
    isolation: int, expected: list[int]
) -> None:
    """T10: what read_committed leaves out, and the markers, take positions all the same."""
    raw = (
        batch([(0, 0, None, b"a", [])])
        + batch([(1, 0, None, b"b", []), (2, 0, None, b"c", [])], producer=9, transaction=True)
        + control(3, 9, abort=True)
        + control(4, 8, abort=False)
        + batch([(5, 0, None, b"d", [])], producer=9, transaction=True)
        + control(6, 9, abort=False)
    )
    found = unpacker_of(raw, aborted=[(9, 1)], isolation=isolation)
    assert [m.position for m in flat(drain(found))] == expected
    assert found.next_fetch_offset == 7


@pytest.mark.parametrize("aborted", [[(8, 0), (9, 3)], [(9, 3), (8, 0)]])
def test_aborted_transactions_are_left_out_from_where_each_begins(
    aborted: list[tuple[int, int]],
) -> None:
    """The broker may list them in any order; what their producers have committed before and behind them counts."""

    def written(offset: int, producer: int) -> bytes:
        return batch([(offset, 0, None, b"v", [])], producer=producer, transaction=True)

    raw = (
        written(0, 8)
        + written(1, 9)
        + control(2, 9, abort=False)
        + written(3, 9)
        + control(4, 8, abort=True)
        + written(5, 8)
        + written(6, 9)
        + control(7, 9, abort=True)
        + written(8, 9)
    )
    found = unpacker_of(raw, aborted=aborted)
    assert [m.position for m in flat(drain(found))] == [1, 5, 8]


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("is_abort", [True, False])
def test_markers_and_batches_that_compaction_has_emptied_move_the_position_only(
    isolation: int, *, is_abort: bool
) -> None:
    """The log cleaner keeps the heads that say where a producer stands, without any record."""
    rows: list[Row] = [(1, 0, None, b"b", []), (2, 0, None, b"c", [])]
    raw = (
        emptied(control(0, 9, abort=is_abort))
        + emptied(batch(rows, producer=9, transaction=True))
        + batch([(3, 0, None, b"d", [])], producer=9, transaction=True)
        + control(4, 9, abort=False)
    )
    found = unpacker_of(raw, isolation=isolation)
    assert [m.position for m in flat(drain(found))] == [3]
    assert found.next_fetch_offset == 5


def test_response_of_markers_alone_gives_no_message_and_moves_on() -> None:
    """T10: an idle transactional topic still has no lag."""
    found = unpacker_of(control(4, 9, abort=False), position=4)
    assert found.take(ASSIGNMENT, 10, ANY) == ([], 0)
    assert (found.is_empty, found.next_fetch_offset) == (True, 5)


def test_corrupt_batch_is_an_error_after_what_came_before_it() -> None:
    """T14: good records are delivered first; then the checksum stops the partition."""
    bad = bytearray(batch([(2, 0, None, b"xyz", [])]))
    bad[-2] ^= 0xFF
    found = unpacker_of(batch([(1, 0, None, b"good", [])]) + bytes(bad))
    messages, _size = found.take(ASSIGNMENT, 10, ANY)
    assert [m.value for m in messages] == [b"good"]
    with pytest.raises(CorruptRecordException):
        found.take(ASSIGNMENT, 10, ANY)


def wrong_checksum(raw: bytes) -> bytes:
    """A bit of its last value is another."""
    return raw[:-2] + bytes([raw[-2] ^ 0xFF]) + raw[-1:]


def wrong_header(raw: bytes) -> bytes:
    """The name of a header is not UTF-8, which the checksum allows."""
    return with_checksum(raw.replace(b"name", b"\xff\xfe\xfd\xfc"))


@pytest.mark.parametrize("damage, good", [(wrong_checksum, 1), (wrong_header, 3)])
@pytest.mark.parametrize("most", [1, ANY])
def test_nothing_behind_what_cannot_be_read_is_delivered(
    damage: Callable[[bytes], bytes], good: int, most: int
) -> None:
    """A batch in the middle: a gap in what is delivered would be passed by the next commit."""
    rows: list[Row] = [(n, 0, None, b"%d" % n, [("name", b"x")] * (n == 3)) for n in range(1, 5)]
    raw = batch([(0, 0, None, b"0", [])]) + damage(batch(rows)) + batch([(5, 0, None, b"5", [])])
    found = unpacker_of(raw)
    taken: list[Message] = []
    with pytest.raises((CorruptRecordException, UnicodeDecodeError)):
        for _ in range(9):
            messages, size = found.take(ASSIGNMENT, most, ANY)
            taken += messages
            assert size == sum(message.size for message in messages)
            assert found.next_fetch_offset == len(taken)
    assert [message.position for message in taken] == list(range(good))
    with pytest.raises((CorruptRecordException, UnicodeDecodeError)):  # however often it is asked
        found.take(ASSIGNMENT, most, ANY)


def test_old_message_formats_can_be_read() -> None:
    """Topics that are older than Kafka 0.11 hold them still."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    builder.append(0, 77, b"k", b"v")
    found = flat(drain(unpacker_of(bytes(builder.build()))))
    assert facts(found) == [(ASSIGNMENT, 0, b"k", b"v", (), 77)]


def test_answer_of_two_formats_is_read_up_to_the_second() -> None:
    """The client's parser knows one in a row. The rest comes when it is fetched again from there."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    builder.append(0, 77, b"k", b"old")
    new = batch([(1, 0, None, b"new", [])])
    found = unpacker_of(bytes(builder.build()) + new)
    assert [m.value for m in found.take(ASSIGNMENT, ANY, ANY)[0]] == [b"old"]
    assert found.next_fetch_offset == 1
    with pytest.raises((CorruptRecordException, SystemError)):
        found.take(ASSIGNMENT, ANY, ANY)
    assert [m.value for m in flat(drain(unpacker_of(new, 1)))] == [b"new"]


def test_old_message_formats_take_no_part_in_transactions() -> None:
    """The answer may list one that is aborted behind them."""
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    builder.append(0, 77, b"k", b"old")
    found = unpacker_of(bytes(builder.build()), aborted=[(9, 1)])
    assert [m.value for m in flat(drain(found))] == [b"old"]


def test_whoever_does_not_ask_for_committed_records_gets_all() -> None:
    """As with Kafka's own clients."""
    raw = batch([(0, 0, None, b"aborted", [])], producer=9, transaction=True)
    found = Unpacker(Batches(raw, 0, [(9, 0)]))
    assert [m.value for m in flat(drain(found))] == [b"aborted"]


@pytest.mark.parametrize("start", [0, 3, 4, 100])
def test_one_bit_that_flipped_never_leaves_a_gap(start: int) -> None:
    """Wherever it is: what comes is right and without a gap, and the position is behind it.

    So it is where the log ends. In the midst of it, the lower bits of where the last batch of an answer says that it lies
    are believed: compaction leaves such gaps.
    """
    places = range(start, start + 9, 3)
    raw = b"".join(
        batch([(o, o, b"k", b"v%d" % o, []) for o in range(at, at + 3)]) for at in places
    )
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        found = unpacker_of(bytes(flipped), start, highwater=start + 9, continues=True)
        taken: list[Message] = []
        with suppress(CorruptRecordException, SystemError):  # the C of the older formats
            while not found.is_empty:
                taken += found.take(ASSIGNMENT, ANY, ANY)[0]
        values = [b"v%d" % at for at in range(start, start + len(taken))]
        assert [m.value for m in taken] == values, bit
        assert found.next_fetch_offset == start + len(taken), bit


@pytest.mark.parametrize("continues", [True, False])
def test_batches_of_before_the_position_are_passed_when_they_come_again(*, continues: bool) -> None:
    """No broker is known that sends them; one that does is read, each answer at the second try."""
    rows: list[Row] = [(n, 0, None, b"%d" % n, []) for n in range(3)]
    raw = batch(rows[:1]) + batch(rows[1:])
    with pytest.raises(CorruptRecordException, match="offsets 0 to 0 cannot lie at 2"):
        unpacker_of(raw, 2).take(ASSIGNMENT, ANY, ANY)
    found = unpacker_of(raw, 2, skips_old=True, continues=continues)
    assert [m.value for m in flat(drain(found))] == [b"2"]


def test_old_marker_does_not_lead_back() -> None:
    """What lies before the position was delivered, and comes once."""
    raw = control(1, 9, abort=False) + batch([(2, 0, None, b"2", []), (3, 0, None, b"3", [])])
    found = unpacker_of(raw, 3, skips_old=True)
    messages, _size = found.take(ASSIGNMENT, ANY, ANY)
    assert [m.value for m in messages] == [b"3"]


def test_checksums_that_nobody_compares_stop_nothing() -> None:
    """``check_crcs=False``: what is stored is delivered as it is."""
    raw = wrong_checksum(batch([(0, 0, None, b"value", [])]))
    found = Unpacker(Batches(raw, 0, checks=False))
    ((message,),) = drain(found)
    assert message.value != b"value"


def reaching(first: int, end: int) -> bytes:
    """A batch of one record, whose head says that it ends there: compaction has taken the others."""
    raw = bytearray(batch([(first, 0, None, b"v", [])]))
    struct.pack_into(">i", raw, 23, end - first - 1)
    return with_checksum(bytes(raw))


HIGH = 30
"""The high watermark, as the answer says."""


@pytest.mark.parametrize(
    "first, end, continues, fits",
    [
        (10, 11, True, True),
        (10, HIGH + AHEAD, True, True),  # the answer's own high watermark may be older
        (10, HIGH + AHEAD + 1, True, False),
        (11, HIGH, True, True),  # compaction has taken what was at 10
        (11, HIGH + 1, True, False),  # it takes nothing where the log ends
        (9, 11, False, True),
        (9, 11, True, False),  # a batch has ended at 10
        (9, 10, False, False),
        (2, 5, False, False),
    ],
)
def test_batch_lies_at_the_position_or_is_refused(
    first: int,
    end: int,
    *,
    continues: bool,
    fits: bool,
) -> None:
    """No checksum says where it lies; position 10 was asked for."""
    found = unpacker_of(reaching(first, end), 10, highwater=HIGH, continues=continues)
    if fits:
        assert [m.position for m in flat(drain(found))] == [first] * (first >= 10)
        assert found.next_fetch_offset == end
        return
    text = f"a batch of the offsets {first} to {end - 1} cannot lie at 10"
    with pytest.raises(CorruptRecordException, match=text):
        found.take(ASSIGNMENT, ANY, ANY)
    assert found.next_fetch_offset == 10


def test_only_the_first_batch_of_an_answer_may_begin_before_the_position() -> None:
    """The second one begins behind the first, or has another place."""
    found = unpacker_of(reaching(8, 12) + reaching(11, 15), 10)
    assert found.take(ASSIGNMENT, ANY, ANY) == ([], 0)
    with pytest.raises(CorruptRecordException, match="11 to 14 cannot lie at 12"):
        found.take(ASSIGNMENT, ANY, ANY)


def test_second_batch_may_not_begin_before_the_end_of_a_first_one_in_its_place() -> None:
    """Its records would come twice, or those behind them not at all."""
    found = unpacker_of(reaching(10, 12) + reaching(11, 15), 10)
    messages, _size = found.take(ASSIGNMENT, ANY, ANY)
    assert [m.position for m in messages] == [10]
    with pytest.raises(CorruptRecordException, match="11 to 14 cannot lie at 12"):
        found.take(ASSIGNMENT, ANY, ANY)


def test_batch_that_ends_where_the_position_is_is_an_old_one() -> None:
    """It comes again with the one behind it, and is passed over."""
    found = unpacker_of(reaching(8, 10) + reaching(10, 12), 10, skips_old=True)
    assert [m.position for m in flat(drain(found))] == [10]


def test_batch_that_cannot_lie_where_it_says_is_none_for_whoever_passes_old_ones_over() -> None:
    """Only what ends before the position is passed."""
    found = unpacker_of(reaching(10, HIGH + AHEAD + 1), 10, highwater=HIGH, skips_old=True)
    with pytest.raises(CorruptRecordException, match="cannot lie at 10"):
        found.take(ASSIGNMENT, ANY, ANY)


@pytest.mark.parametrize("behind, fits", [(14, True), (13, False), (20, True)])
def test_batch_behind_a_gap_begins_before_the_next_one(behind: int, *, fits: bool) -> None:
    """A bit of its place would hide what it lies over."""
    found = unpacker_of(reaching(12, 14) + reaching(behind, 22), 10, highwater=HIGH)
    if fits:
        assert [m.position for m in flat(drain(found))] == [12, behind]
        assert found.next_fetch_offset == 22
        return
    with pytest.raises(CorruptRecordException, match="12 to 13 cannot lie at 10"):
        found.take(ASSIGNMENT, ANY, ANY)


@pytest.mark.parametrize("position", [4, 5, 6])
def test_compressed_messages_of_old_formats_are_read_from_inside(position: int) -> None:
    """Their common offset is the last one's; the first is not told."""
    builder = LegacyRecordBatchBuilder(1, CODECS["gzip"], 1 << 16)
    for n in range(3):
        builder.append(n, 77, None, b"v%d" % n)
    found = unpacker_of(rebase(bytes(builder.build()), 6), position, highwater=7, continues=True)
    assert [m.position for m in flat(drain(found))] == list(range(position, 7))
    assert found.next_fetch_offset == 7


def test_the_one_partition_of_an_answer_is_read_by_its_own_names() -> None:
    """Versions have other fields; an answer of a broker that throttles has none of them."""
    old = FetchResponse_v4(0, [("t", [(3, 6, 9, 8, [(7, 5)], b"x")])])
    assert partition_of(old) == {
        "partition": 3,
        "error_code": 6,
        "highwater_offset": 9,
        "last_stable_offset": 8,
        "aborted_transactions": [(7, 5)],
        "message_set": b"x",
    }
    new = FetchResponse_v7(0, 0, 1, [("t", [(3, 0, 9, 8, 2, None, b"x")])])
    assert (partition_of(new) or {})["log_start_offset"] == 2
    assert partition_of(FetchResponse_v7(0, 0, 1, [])) is None
    assert partition_of(FetchResponse_v7(0, 0, 1, None)) is None


def test_error_of_a_whole_answer_is_raised() -> None:
    """Its partitions, if there are any, say nothing of it."""
    answer = FetchResponse_v7(0, 70, 1, [("t", [(3, 0, 9, 8, 2, None, b"x")])])
    with pytest.raises(for_code(70), match="the fetch as a whole"):
        partition_of(answer)
