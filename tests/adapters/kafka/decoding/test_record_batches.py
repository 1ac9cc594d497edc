"""How much a batch may hold: real bombs of each codec, and what is large by right; and which answers may leave something out."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.decoding.record_batches import (
    MAX_BATCH_BYTES,
    LargeBatchError,
    batch_headers,
    check_batch,
    decompress,
    is_believed,
    oversized,
    transactions_in_doubt,
)
from consumer_sdk.adapters.kafka.decoding.salvage import salvage
from consumer_sdk.adapters.kafka.ranges.batches import Columnizer, open_batches
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import CODECS, batch, control, rebase

MIB = 1 << 20
LIMIT = MIB
COMPRESSED = {name: kind for name, kind in CODECS.items() if kind}


def bomb(codec: int, size: int = 8 * MIB, offset: int = 0, records: int = 1) -> bytes:
    """A batch of zeros."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, 0, 0, 2 * size)
    for n in range(records):
        builder.append(n, 1, None, bytes(size // records), [])
    return rebase(bytes(builder.build()), offset)


def peak(work: Callable[[], object]) -> int:
    """Bytes that some work takes at most, beyond what there is."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_bomb_is_an_error_that_says_what_to_do(kind: int) -> None:
    """Which batch, of which codec, how large it may be, and the option; without decompressing it."""
    raw = bomb(kind, offset=7)
    name = next(name for name, number in CODECS.items() if number == kind)

    def check() -> None:
        with pytest.raises(LargeBatchError) as caught:
            check_batch(raw, LIMIT)
        said = str(caught.value)
        assert f"offset 7 holds more than {LIMIT} bytes" in said
        assert f"{len(raw) - 61} bytes of {name}: raise max_batch_bytes=" in said

    assert peak(check) < 2 * LIMIT + len(raw)
    check_batch(raw, 9 * MIB)


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_zeros_up_to_a_brokers_limit_are_no_bomb(kind: int) -> None:
    """A record of 1 MiB, as large as a broker takes one, and several of them in one batch."""
    raw = bomb(kind, 16 * MIB, records=16)
    check_batch(raw, MAX_BATCH_BYTES)
    assert len(decompress(kind, raw[61:])) >= 16 * MIB


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_range_ends_before_a_bomb(kind: int) -> None:
    """What came before it was yielded; memory stays at what a batch may have."""
    data = batch([(n, 1, None, b"v", []) for n in range(3)]) + bomb(kind, offset=3)
    columnizer = Columnizer(0, 9, is_committed=True, with_headers=False, max_bytes=1, most=LIMIT)
    found: list[int] = []

    def read() -> None:
        with pytest.raises(LargeBatchError):
            for columns in columnizer.columns(open_batches(data), []):
                found.extend(columns.positions)

    assert peak(read) < 2 * LIMIT + 2 * len(data)
    assert found == [0, 1, 2]


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_bomb_that_is_taken_apart_is_unreadable_as_a_whole(kind: int) -> None:
    """Its bytes are kept as they are stored, and what is behind it is known."""
    raw = bomb(kind, offset=3, records=4)
    found = salvage(raw, 5, most=LIMIT)
    assert found is not None
    assert found.unreadable is not None
    assert (found.unreadable.first, found.unreadable.last) == (5, 6)
    assert found.unreadable.raw == raw
    assert isinstance(found.unreadable.error, LargeBatchError)


@pytest.mark.parametrize("magic, kind", [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)])
def test_bomb_of_an_old_format_is_found(magic: int, kind: int) -> None:
    """The compressed bytes are the value of a record."""
    builder = LegacyRecordBatchBuilder(magic, kind, 16 * MIB)
    builder.append(0, 1, None, bytes(8 * MIB))
    raw = bytes(builder.build())
    with pytest.raises(LargeBatchError, match="raise max_batch_bytes="):
        check_batch(raw, LIMIT)
    check_batch(raw, 9 * MIB)
    found = salvage(raw, 0, most=LIMIT)
    assert found is not None
    assert found.unreadable is not None


@pytest.mark.parametrize("magic", [0, 1])
def test_bomb_of_an_old_format_is_found_behind_a_key(magic: int) -> None:
    """The compressed bytes begin behind it."""
    raw, at = old_bomb(magic), (18, 26)[magic]
    assert raw[at : at + 4] == b"\xff" * 4
    keyed = raw[:at] + struct.pack(">i", 3) + b"key" + raw[at + 4 :]
    keyed = keyed[:8] + struct.pack(">i", len(keyed) - 12) + keyed[12:]
    with pytest.raises(LargeBatchError, match=f"in {len(raw) - at - 8} bytes of gzip"):
        check_batch(keyed, LIMIT)


def zstd_of(blocks: int, each: int = 1 << 17) -> bytes:
    """A frame of blocks that are one byte and a count."""
    heads = [each << 3 | 1 << 1 | (n == blocks - 1) for n in range(blocks)]
    body = b"".join(head.to_bytes(3, "little") + b"\0" for head in heads)
    return struct.pack("<IBB", 0xFD2FB528, 0, 0x38) + body


def framed(payload: bytes, kind: int) -> bytes:
    """A batch with these compressed bytes."""
    raw = bytearray(batch([(0, 1, None, b"", [])])[:61] + payload)
    raw[8:12] = (len(raw) - 12).to_bytes(4)
    raw[22] |= kind
    return bytes(raw)


def test_blocks_that_are_a_byte_and_a_count_are_found() -> None:
    """A gigabyte in 33 kB, which is a thirtieth of what a broker takes at once."""
    raw = framed(zstd_of(8192), 4)
    assert len(raw) < 33_000
    with pytest.raises(LargeBatchError):
        check_batch(raw, LIMIT)


def test_several_frames_and_what_lies_between_them_are_counted_together() -> None:
    """A limit for each frame alone would be none."""
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"01234"
    raw = framed(b"".join([*([zstd_of(3), skipped] * 3)]), 4)
    with pytest.raises(LargeBatchError):
        check_batch(raw, LIMIT)
    check_batch(raw, 9 << 17)
    members = framed(gzip.compress(bytes(600_000)) * 2, 1)
    with pytest.raises(LargeBatchError):
        check_batch(members, LIMIT)
    check_batch(members, 1_200_000)


def test_size_that_is_a_lie_is_not_made_room_for() -> None:
    """Three bytes of snappy may claim two gigabytes."""
    with pytest.raises(LargeBatchError):
        check_batch(framed(b"\xff\xff\xff\xff\x07\x00", 2), MAX_BATCH_BYTES)


XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
FALSE_SIZE = struct.pack(">i", 6) + b"\xff\xff\xff\xff\x07\x00"


@pytest.mark.parametrize("tail", [bytes(4), struct.pack(">i", 2) + b"\xff\xff", b"\xff"])
def test_false_size_before_a_damaged_block_is_found(tail: bytes) -> None:
    """The client makes room for the first block before it comes to the damaged one."""
    with pytest.raises(LargeBatchError):
        check_batch(framed(XERIAL + FALSE_SIZE + tail, 2), MAX_BATCH_BYTES)


def test_block_that_leads_back_is_found() -> None:
    """The client would decompress the same blocks again and again, and keep all that they become."""
    block = bytes(cramjam.snappy.compress_raw(b"x"))
    there = struct.pack(">i", len(block)) + block
    back = struct.pack(">i", -2 * len(there) - 4)
    with pytest.raises(LargeBatchError, match="negative size"):
        check_batch(framed(XERIAL + there + back + there, 2), MAX_BATCH_BYTES)


@pytest.mark.parametrize("payload", [b"\xff\xff", XERIAL + struct.pack(">i", 2) + b"\xff\xff"])
def test_damaged_snappy_passes_to_the_codec(payload: bytes) -> None:
    """It says what is wrong; the batches beside it can be read."""
    raw = framed(payload, 2)
    check_batch(raw, LIMIT)
    small = batch([(0, 1, None, b"v", [])])
    assert oversized(raw + small, LIMIT) is None


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_what_is_cut_off_passes_to_the_codec(kind: int) -> None:
    """Wherever it ends, and without a search for an end that is not there."""
    payload = batch([(0, 1, None, bytes(range(256)) * 3 + bytes(900), [])], kind)[61:]
    for cut in range(len(payload)):
        check_batch(framed(payload[:cut], kind), 20_000)


@pytest.mark.parametrize("cut", range(37, 42))
def test_blocks_that_are_cut_off_pass_to_the_codec(cut: int) -> None:
    """There is no last one to wait for."""
    check_batch(framed(zstd_of(9)[:cut], 4), 9 << 17)


def test_first_batch_that_is_too_large_is_found_among_others() -> None:
    """Where it begins; what is cut off at the end is not looked at."""
    small = batch([(n, 1, b"k", b"v" * 99, []) for n in range(9)], 4)
    large = bomb(4, offset=9)
    found = oversized(small + large + large, LIMIT)
    assert found is not None
    assert found[0] == len(small)
    assert oversized(small + large[:-1], LIMIT) is None
    assert oversized(small * 3, LIMIT) is None
    assert oversized(b"", LIMIT) is None


def old_bomb(magic: int) -> bytes:
    """A set of messages that were compressed together."""
    builder = LegacyRecordBatchBuilder(magic, 1, 16 * MIB)
    builder.append(0, 1, None, bytes(2 * MIB))
    return bytes(builder.build())


def bomb_whose_checksum_looks_plain() -> bytes:
    """Its byte at the place of the old formats' attributes has no bit of a codec."""
    found = (bomb(1, 2 * MIB + extra) for extra in range(1000))
    return next(each for each in found if not each[17] & 0x07)


@pytest.mark.parametrize(
    "large",
    [old_bomb(0), old_bomb(1), bomb_whose_checksum_looks_plain()],
    ids=["0", "1", "2"],
)
def test_batch_that_is_too_large_is_found_of_each_format(large: bytes) -> None:
    """Behind any other, and only if all of it is there."""
    small = old_message(b"v" * 9) + old_message(b"v" * 9, 1) + PLAIN
    found = oversized(small + large, LIMIT)
    assert found is not None
    assert found[0] == len(small)
    assert oversized(small + large, 9 * MIB) is None
    for cut in (*range(70), len(large) - 1):
        assert oversized(small + large[:cut], LIMIT) is None


@pytest.mark.parametrize("length", [0, 5, 10])
def test_nothing_is_looked_at_behind_a_length_that_no_batch_has(length: int) -> None:
    """The client reads nothing behind it either."""
    damaged = PLAIN[:8] + struct.pack(">i", length) + PLAIN[12 : 12 + length]
    assert oversized(damaged + bomb(1), LIMIT) is None


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(sorted(COMPRESSED.values())),
    parts=st.lists(
        st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 20_000)), max_size=5
    ),
    at=st.integers(0, 10_000),
    bits=st.integers(0, 255),
)
def test_what_passes_never_becomes_more_than_it_may(
    kind: int, parts: Sequence[tuple[bytes, int]], at: int, bits: int
) -> None:
    """Whatever the bytes are: a batch that a bit has changed too, where no checksum is looked at."""
    data = b"".join(part * times for part, times in parts)
    raw = bytearray(batch([(0, 1, None, data, [])], kind))
    raw[61 + at % (len(raw) - 61)] ^= bits
    most = 10_000
    try:
        check_batch(bytes(raw), most)
    except LargeBatchError:
        assert bits or len(data) + 50 > most
        return
    with suppress(
        OSError, EOFError, ValueError, struct.error, cramjam.DecompressionError, Exception
    ):
        assert len(decompress(kind, bytes(raw[61:]))) <= most


def of(producer: int, first: int, stop: int) -> bytes:
    """A batch of a transaction."""
    return batch(rows(first, stop), producer=producer, transaction=True)


PLAIN = batch(rows(0, 3))
OPEN = of(7, 3, 6)
ENDED = OPEN + control(6, 7, abort=False)
ABORTED = OPEN + control(6, 7, abort=True)


def old_message(value: bytes | None, timestamp: int | None = None) -> bytes:
    """At offset 0, of one of the formats before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(0 if timestamp is None else 1, 0, 1 << 16)
    builder.append(0, timestamp, None, value)
    return bytes(builder.build())


SHORTEST = old_message(None)
LOOKS_TRANSACTIONAL = old_message(b"v" * 60, 0x10 << 24)
"""What is a flag in a batch is a part of the time here."""


def test_heads_are_found_of_the_shortest_messages_too() -> None:
    """And of what is damaged, one byte after another: a length may be anything."""
    size = len(SHORTEST)
    assert size == 26
    found = list(batch_headers(SHORTEST * 2 + PLAIN))
    assert [(each.at, each.end) for each in found] == [
        (0, size),
        (size, 2 * size),
        (2 * size, 2 * size + len(PLAIN)),
    ]
    assert [each.magic for each in found] == [0, 0, 2]
    damaged = PLAIN[:8] + struct.pack(">i", -100) + PLAIN[12:]
    assert next(each.end for each in batch_headers(damaged)) == 12 - 100


@pytest.mark.parametrize(
    "data, aborted, doubt",
    [
        (PLAIN, [], []),
        (SHORTEST + OPEN, [], [(7, 3)]),
        (LOOKS_TRANSACTIONAL, [], []),
        (PLAIN + OPEN + ENDED[:40], [], []),
        (PLAIN + OPEN + ENDED[:50], [], []),
        (PLAIN + OPEN, [], [(7, 3)]),
        (PLAIN + OPEN, [(7, 3)], []),
        (PLAIN + OPEN, [(7, 0)], []),  # it has begun before the answer
        (PLAIN + OPEN, [(8, 3)], [(7, 3)]),
        (PLAIN + OPEN, [(7, 4)], [(7, 3)]),
        (OPEN + PLAIN, [], [(7, 3)]),
        (ENDED, [], []),
        (ABORTED, [(7, 3)], []),
        (ABORTED + of(7, 7, 9), [(7, 3)], [(7, 7)]),  # the next transaction is another one
        (ABORTED + of(7, 7, 9), [(7, 3), (7, 7)], []),
        (ENDED + of(8, 7, 9) + of(9, 9, 11), [], [(8, 7), (9, 9)]),
        (ENDED + of(8, 7, 9) + of(9, 9, 11), [(8, 7)], [(9, 9)]),
        (ENDED + of(8, 7, 9) + of(9, 9, 11), [(9, 9), (8, 7)], []),
        (PLAIN + OPEN + ENDED[:20], [], []),  # cut off, since the bytes were enough
        (PLAIN + OPEN + ENDED[:-1], [], []),
        (b"", [], []),
    ],
)
def test_transaction_inside_of_which_an_answer_ends_and_of_which_it_says_nothing_is_in_doubt(
    data: bytes, aborted: Sequence[tuple[int, int]], doubt: Sequence[tuple[int, int]]
) -> None:
    """Only where it ends with a whole batch, as it does where a segment of the log ends."""
    assert transactions_in_doubt(data, aborted, 99) == set(doubt)


@pytest.mark.parametrize("stable, is_in_doubt", [(-1, False), (5, False), (6, False), (7, True)])
@pytest.mark.parametrize("data", [PLAIN + OPEN, OPEN + batch(rows(3, 6))])
def test_nothing_is_in_doubt_where_an_answer_has_all_that_is_decided(
    data: bytes, stable: int, *, is_in_doubt: bool
) -> None:
    """It ends there for that reason, and not because a segment does."""
    assert bool(transactions_in_doubt(data, [], stable)) is is_in_doubt


ONE, OTHER = (7, 3), (8, 5)


@pytest.mark.parametrize(
    "doubt, before, is_right",
    [
        ([], None, True),
        ([], [ONE], True),
        ([ONE], None, False),
        ([ONE], [], False),
        ([ONE], [ONE], True),
        ([ONE], [ONE, OTHER], True),  # the answer before has left one out
        ([ONE, OTHER], [ONE], False),  # this one does, or that one was of other segments
        ([OTHER], [ONE], False),
    ],
)
def test_answer_is_believed_if_all_that_it_leaves_in_doubt_was_so_in_another_one(
    doubt: Sequence[tuple[int, int]], before: Sequence[tuple[int, int]] | None, *, is_right: bool
) -> None:
    """Each of the two may be the one that was made while the log cleaner has replaced a segment."""
    known = None if before is None else frozenset(before)
    assert is_believed(frozenset(doubt), known) is is_right
