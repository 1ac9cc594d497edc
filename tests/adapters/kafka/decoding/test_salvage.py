"""What is made of a batch of which something cannot be read."""

from __future__ import annotations

import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from consumer_sdk.adapters.kafka.decoding.salvage import (
    Salvaged,
    Unreadable,
    salvage,
    unreadable_error,
)
from consumer_sdk.records import Assignment, Message, Partition
from tests.adapters.kafka.decoding.test_unpacking import (
    ANY,
    CODECS,
    Row,
    batch,
    emptied,
    rebase,
    with_checksum,
    wrong_checksum,
    wrong_header,
)

ASSIGNMENT = Assignment(Partition("t", "0"), 1)


def rows(first: int, stop: int, *bad: int) -> list[Row]:
    """Records whose values are their offsets; the header of the bad ones is to be damaged."""
    return [(n, n, None, b"%d" % n, [("name", b"x")] * (n in bad)) for n in range(first, stop)]


def found(data: bytes, position: int = 0) -> list[int | tuple[int, int | None]]:
    """Offsets of what can be read, first and last offsets of what cannot."""
    return list_of(salvage(data, position))


def list_of(batch: Salvaged | None) -> list[int | tuple[int, int | None]]:
    """All of it, in order."""
    assert batch is not None
    seen: list[int | tuple[int, int | None]] = []
    while not batch.is_empty:
        if (item := batch.unreadable) is not None:
            seen.append((item.first, item.last))
            if item.last is None:
                return seen
            batch.pass_by(item.last + 1)
        messages, size = batch.take(ASSIGNMENT, 2, ANY)
        assert size == sum(message.size for message in messages)
        seen += [message.position for message in messages]
        if messages:
            assert batch.next_fetch_offset >= messages[-1].position + 1
    return seen


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_one_bad_record_of_a_batch_is_unreadable_alone(codec: int) -> None:
    """Those before and after it come as they are; its own bytes are kept."""
    good = batch([(n, n, b"k", b"value" * 9, [("name", b"x")]) for n in range(3, 6)], codec)
    assert salvage(good, 3) is None
    raw = damaged(codec)
    assert found(raw, 3) == [3, (4, 4), 5]
    assert found(raw, 4) == [(4, 4), 5]
    assert found(raw, 5) == [5]
    salvaged = salvage(raw, 4)
    assert salvaged is not None
    assert salvaged.unreadable is not None
    assert b"\xff\xfe\xfd\xfc" in salvaged.unreadable.raw
    salvaged.pass_by(5)
    ((message,), _size) = salvaged.take(ASSIGNMENT, ANY, ANY)
    assert (message.value, message.key, message.timestamp) == (b"value" * 9, b"k", 5)
    assert message.assignment is ASSIGNMENT
    assert salvaged.next_fetch_offset == 6


def damaged(codec: int) -> bytes:
    """Offsets 3 to 5, with a header's name in the middle that is not UTF-8."""
    names: dict[int, list[tuple[str, bytes | None]]] = {4: [("name", b"x")]}
    plain = batch([(n, n, b"k", b"value" * 9, names.get(n, [])) for n in range(3, 6)])
    payload = plain[61:].replace(b"name", b"\xff\xfe\xfd\xfc")
    from aiokafka import codec as codecs

    encode = {
        0: bytes,
        1: codecs.gzip_encode,
        2: codecs.snappy_encode,
        3: codecs.lz4_encode,
        4: codecs.zstd_encode,
    }[codec]
    packed = encode(payload)
    head = bytearray(plain[:61])
    struct.pack_into(">i", head, 8, 61 - 12 + len(packed))
    head[22] |= codec
    return with_checksum(bytes(head) + packed)


def test_batch_with_a_wrong_checksum_is_unreadable_up_to_its_end() -> None:
    """From the position asked for: what lies before it was settled."""
    raw = wrong_checksum(batch(rows(3, 7)))
    assert found(raw, 0) == [(3, 6)]
    assert found(raw, 5) == [(5, 6)]


def test_end_that_the_head_does_not_confirm_is_not_known() -> None:
    """A wrong last offset would pass records that are sound: the next batch may confirm it."""
    holes = wrong_checksum(batch([rows(3, 4)[0], rows(6, 7)[0]]))  # a gap: the count says less
    assert found(holes, 3) == [(3, None)]
    assert found(holes + batch(rows(7, 8)), 3) == [(3, 6)]
    assert found(holes + emptied(batch(rows(7, 8))), 3) == [(3, 6)]
    assert found(holes + batch(rows(9, 10)), 3) == [(3, None)]
    assert found(holes + wrong_checksum(batch(rows(7, 8))), 3) == [(3, None)]
    far = bytearray(batch(rows(3, 7)))
    far[23] ^= 0x01  # the last offset's distance
    assert found(bytes(far), 3) == [(3, None)]


def test_end_of_a_batch_that_lies_elsewhere_is_not_known() -> None:
    """The count confirms how long it is; no checksum says where it begins."""
    moved = rebase(wrong_checksum(batch(rows(0, 3))), 8)
    assert found(moved + batch(rows(3, 20))) == [(0, None)]
    assert found(moved + wrong_checksum(batch(rows(3, 20)))) == [(0, None)]
    assert found(moved + batch(rows(20, 21))) == [(8, 10)]  # compaction may leave a gap
    assert list_of(salvage(moved, 0, 3)) == [(0, None)]
    assert list_of(salvage(moved, 0, 11)) == [(8, 10)]


def test_codec_that_fails_makes_the_batch_unreadable() -> None:
    """The checksum fits, and so its end is known."""
    raw = bytearray(batch([(n, n, None, b"x" * 99, []) for n in range(3, 7)], CODECS["gzip"]))
    raw[61:65] = b"\0\0\0\0"
    assert found(with_checksum(bytes(raw)), 4) == [(4, 6)]


def test_records_that_do_not_fill_their_batch_are_unreadable_from_there() -> None:
    """A size that is wrong, under a checksum that fits."""
    raw = bytearray(batch(rows(0, 3)))
    raw[61] ^= 0x40  # of the first record
    assert found(with_checksum(bytes(raw))) == [(0, 2)]


def test_record_without_a_byte_ends_what_can_be_told_apart() -> None:
    """Its attributes would be taken from the next one."""
    raw = bytearray(batch(rows(0, 3)))
    raw[61] = 0  # the size of the first record
    assert found(with_checksum(bytes(raw))) == [(0, 2)]


def test_records_that_can_be_read_keep_all_that_they_have() -> None:
    """Headers, too, of any number."""
    headers: list[list[tuple[str, bytes | None]]] = [
        [("h", b"1"), ("h", None)],
        [("name", b"x")],
        [],
    ]
    raw = wrong_header(batch([(n, n, b"k", b"v", headers[n]) for n in range(3)]))
    salvaged = salvage(raw, 0)
    assert salvaged is not None
    ((first,), _size) = salvaged.take(ASSIGNMENT, ANY, ANY)
    salvaged.pass_by(2)
    ((last,), _size) = salvaged.take(ASSIGNMENT, ANY, ANY)
    assert (list(first.headers), last.headers) == (headers[0], ())


def with_more_behind(raw: bytes) -> bytes:
    """The batch with a byte behind its records, under a checksum that fits."""
    return with_checksum(raw[:8] + struct.pack(">i", len(raw) - 12 + 1) + raw[12:] + b"\0")


def test_bytes_behind_the_last_record_make_nothing_unreadable() -> None:
    """The offset behind the batch is the next one's, whose record is sound."""
    assert salvage(with_more_behind(batch(rows(0, 3))), 0) is None
    raw = with_more_behind(wrong_header(batch(rows(0, 3, 0))))
    assert found(raw) == [(0, 0), 1, 2]


def test_bytes_behind_the_records_of_a_batch_with_a_gap_at_its_end_are_unreadable() -> None:
    """They may be a record that the count leaves out."""
    raw = bytearray(with_more_behind(batch(rows(0, 3))))
    struct.pack_into(">i", raw, 57, 2)
    assert found(with_checksum(bytes(raw))) == [0, 1, (2, 2)]


def test_end_of_a_batch_counts_though_its_last_record_was_compacted() -> None:
    """Else what lies behind it would be asked for in the midst of it."""
    raw = bytearray(wrong_header(batch(rows(0, 3, 0))))
    struct.pack_into(">i", raw, 23, 9)
    salvaged = salvage(with_checksum(bytes(raw)), 0)
    assert list_of(salvaged) == [(0, 0), 1, 2]
    assert salvaged is not None
    assert salvaged.next_fetch_offset == 10


def test_limits_of_a_take_are_those_of_an_unpacker() -> None:
    """The record that passes the bytes still comes, and none behind it."""
    salvaged = salvage(wrong_header(batch(rows(0, 6, 5))), 0)
    assert salvaged is not None
    taken = [salvaged.take(ASSIGNMENT, *limits) for limits in ((0, 9), (9, 0), (9, 2), (2, 9))]
    assert [([m.position for m in each], size) for each, size in taken] == [
        ([], 0),
        ([], 0),
        ([0, 1], 2),
        ([2, 3], 2),
    ]
    assert salvaged.next_fetch_offset == 4
    assert not salvaged.is_empty


def test_batch_before_the_position_says_nothing_of_it() -> None:
    """Of one that is damaged nobody knows where it ends; one that is sound is passed over."""
    raw = wrong_checksum(batch(rows(3, 7)))
    assert found(raw, 6) == [(6, 6)]
    assert found(raw, 7) == [(7, None)]
    assert salvage(damaged(0), 6) is None


def test_head_alone_is_a_batch() -> None:
    """Compaction leaves it, to say where a producer stands."""
    raw = wrong_checksum(emptied(batch(rows(3, 7))))
    assert found(raw, 3) == [(3, None)]
    assert found(raw + batch(rows(7, 8)), 3) == [(3, 6)]


def test_batch_that_ends_before_it_begins_confirms_nothing() -> None:
    """A count of 0 says the same as a last offset below the first."""
    raw = bytearray(batch(rows(8, 9)))
    struct.pack_into(">i", raw, 23, -1)
    struct.pack_into(">i", raw, 57, 0)
    assert found(bytes(raw)) == [(0, None)]


def test_batch_that_nobody_wants_is_passed_over_if_its_checksum_fits() -> None:
    """Else its head, by which it is not wanted, may be wrong."""
    raw = damaged(0)
    assert salvage(raw, 3, skips=lambda _raw: True) is None
    asked: list[bytes] = []
    assert list_of(salvage(raw + batch(rows(6, 7)), 3, skips=asked.append)) == [3, (4, 4), 5]  # type: ignore[arg-type]
    assert asked == [raw]
    bad = wrong_checksum(raw)
    assert list_of(salvage(bad, 3, skips=lambda _raw: True)) == [(3, 5)]


@pytest.mark.parametrize("codec", [CODECS["gzip"], CODECS["zstd"]])
def test_batch_that_holds_too_much_is_unreadable_with_a_known_end(codec: int) -> None:
    """It is not taken apart: that would take the memory which the limit is for."""
    raw = batch([(n, n, None, bytes(5000), []) for n in range(3, 6)], codec)
    assert salvage(raw, 3) is None
    assert list_of(salvage(raw, 4, most=10_000)) == [(4, 5)]


def test_compressed_messages_of_old_formats_are_unreadable_together() -> None:
    """From the position asked for up to the last one's offset."""
    builder = LegacyRecordBatchBuilder(1, CODECS["gzip"], 1 << 16)
    for n in range(3):
        builder.append(n, 77, None, b"value" * 20)
    raw = rebase(bytes(builder.build()), 6)
    assert salvage(raw, 4) is None
    assert found(wrong_checksum(raw), 5) == [(5, 6)]
    assert list_of(salvage(raw, 4, most=100)) == [(4, 6)]


def test_compressed_messages_of_old_formats_that_the_codec_refuses_are_unreadable() -> None:
    """Though the checksum fits; what is behind them is the next record."""
    builder = LegacyRecordBatchBuilder(1, CODECS["gzip"], 1 << 16)
    for n in range(3):
        builder.append(n, 77, None, b"value" * 20)
    raw = bytearray(rebase(bytes(builder.build()), 6))
    raw[-12:-8] = b"\xff" * 4
    raw[12:16] = zlib.crc32(raw[16:]).to_bytes(4)
    salvaged = salvage(bytes(raw), 5)
    assert list_of(salvaged) == [(5, 6)]
    assert salvaged is not None
    assert salvaged.next_fetch_offset == 7


@pytest.mark.parametrize(
    "first, last, text",
    [
        (4, 4, "reading t: offset 4 cannot be read, also when fetched again (ValueError: why)"),
        (4, 6, "reading t: the offsets 4 to 6 cannot be read, also when fetched again (Value"),
        (4, None, "how far it reaches is not known: repair the log, or give up"),
    ],
)
def test_error_names_what_cannot_be_read(first: int, last: int | None, text: str) -> None:
    """With what to do where its end is not known, and with the cause."""
    cause = ValueError("why")
    error = unreadable_error("reading t", Unreadable(first, last, b"", cause), "give up")
    assert text in str(error)
    assert f"offset{'' if last in (4, None) else 's'} 4" in str(error)
    assert error.__cause__ is cause


@pytest.mark.parametrize("cut", [10, 30, 70])
def test_batch_that_is_cut_off_ends_nobody_knows_where(cut: int) -> None:
    """Nothing of it is passed."""
    assert found(batch(rows(0, 3))[:cut]) == [(0, None)]


@pytest.mark.parametrize("length", [-20, -1, 0, 5, 9, 30, 48, 1 << 30])
def test_length_that_is_wrong_ends_nobody_knows_where(length: int) -> None:
    """Negative, too short or too long."""
    raw = batch(rows(0, 3))
    assert found(raw[:8] + struct.pack(">i", length) + raw[12:]) == [(0, None)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_unreadable_up_to_their_offset(magic: int) -> None:
    """Each record, or compressed set, has the offset of its last record."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
    builder.append(0, 77, b"k", b"value")
    raw = rebase(bytes(builder.build()), 4)
    assert salvage(raw, 4) is None
    assert found(wrong_checksum(raw), 4) == [(4, 4)]
    assert found(wrong_checksum(raw), 5) == [(5, None)]


def test_items_are_what_they_say() -> None:
    """A bad header of one record of a plain batch, read through the same helpers."""
    raw = wrong_header(batch(rows(0, 4, 2)))
    salvaged = salvage(raw, 0)
    assert salvaged is not None
    messages, _size = salvaged.take(ASSIGNMENT, ANY, ANY)
    assert [type(each) for each in messages] == [Message, Message]
    assert isinstance(salvaged.unreadable, Unreadable)
    assert isinstance(salvaged.unreadable.error, ValueError)
    assert not salvaged.is_empty
