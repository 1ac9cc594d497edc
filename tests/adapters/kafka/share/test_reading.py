"""Acquired records as messages: gaps, what was not acquired, and what cannot be read."""

from __future__ import annotations

import pytest
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.decoding.record_batches import LargeBatchError
from consumer_sdk.adapters.kafka.decoding.unpacking import Unpacker
from consumer_sdk.adapters.kafka.share.messages import AcquiredRange
from consumer_sdk.adapters.kafka.share.reading import AcquiredRecords, Taken
from consumer_sdk.records import Assignment, Partition
from tests.adapters.kafka.decoding.test_record_batches import COMPRESSED, bomb, peak
from tests.adapters.kafka.decoding.test_salvage import damaged
from tests.adapters.kafka.decoding.test_unpacking import batch as records_of
from tests.adapters.kafka.decoding.test_unpacking import emptied, with_checksum

ASSIGNMENT = Assignment(Partition("t", "0"), 1)


def batch(first: int, deltas: list[int], *, last: int | None = None, bad: bool = False) -> bytes:
    """A record batch at an offset, with records at these distances; the others were compacted."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for delta in deltas:
        builder.append(delta, timestamp=1, key=None, value=b"%d" % (first + delta), headers=[])
    raw = bytearray(builder.build())
    raw[:8] = first.to_bytes(8)
    raw[23:27] = (max(deltas, default=0) if last is None else last).to_bytes(4)
    raw[17:21] = calc_crc32c(bytes(raw[21:])).to_bytes(4)
    if bad:
        raw[-1] ^= 1
    return bytes(raw)


def acquired(
    data: bytes, *ranges: tuple[int, int, int], limit: int | None = None
) -> AcquiredRecords:
    """Ranges of first, last and delivery count."""
    found = [AcquiredRange(*each) for each in ranges]
    return AcquiredRecords(data, found, most=1 << 20, limit=limit)


def drain(records: AcquiredRecords, most: int = 100) -> tuple[list[int], Taken]:
    """Offsets of all messages, and what was said of the others."""
    offsets: list[int] = []
    said = Taken()
    while not records.is_empty:
        taken = records.take(ASSIGNMENT, most, 1 << 20)
        assert not taken.messages or taken.unreadable is None
        assert taken.size == sum(message.size for message in taken.messages)
        offsets += [message.position for message in taken.messages]
        said.gaps += taken.gaps
        said.released += taken.released
        said.error = said.error or taken.error
        said.unreadable = said.unreadable or taken.unreadable
    assert len(records) == 0
    return offsets, said


def test_only_what_was_acquired_is_handed_out() -> None:
    """Batches hold records that other members have."""
    data = batch(0, [0, 1, 2, 3]) + batch(4, [0, 1, 2, 3])
    offsets, said = drain(acquired(data, (1, 2, 1), (5, 5, 2)))
    assert offsets == [1, 2, 5]
    assert not said.gaps + said.released


def test_compacted_offsets_are_gaps_and_unreached_ones_come_again() -> None:
    """A gap is said of what was read alone: behind the last batch there may be records."""
    data = batch(0, [0, 2], last=4) + batch(7, [0])
    offsets, said = drain(acquired(data, (0, 9, 1)))
    assert offsets == [0, 2, 7]
    assert said.gaps == [1, 3, 4, 5, 6]
    assert said.released == [8, 9]


def test_batch_that_is_cut_off_comes_again() -> None:
    """The bytes may end anywhere."""
    data = batch(0, [0, 1]) + batch(2, [0, 1])[:-3]
    offsets, said = drain(acquired(data, (0, 3, 1)))
    assert offsets == [0, 1]
    assert said.released == [2, 3]


def test_damaged_batch_is_released_once_and_then_unreadable() -> None:
    """With its bytes; what comes behind it is read."""
    data = batch(0, [0]) + batch(1, [0, 1], bad=True) + batch(3, [0])
    offsets, said = drain(acquired(data, (0, 3, 1)))
    assert (offsets, said.released) == ([0], [1, 2, 3])
    assert said.error is not None
    offsets, said = drain(acquired(data, (0, 3, 2)))
    assert (offsets, said.released, said.gaps) == ([0, 3], [], [])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (1, 2)


def test_unreadable_batch_is_clipped_to_what_was_acquired() -> None:
    """The rest of it is another member's to give up."""
    data = batch(0, [0, 1, 2, 3], bad=True)
    offsets, said = drain(acquired(data, (1, 2, 2)))
    assert not offsets
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (1, 2)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("data", [b"", b"\0" * 11])
def test_bytes_that_hold_no_batch_leave_all_to_come_again(data: bytes, count: int) -> None:
    """Nothing is wrong with them."""
    offsets, said = drain(acquired(data, (0, 3, count)))
    assert (offsets, said.gaps, said.released) == ([], [], [0, 1, 2, 3])
    assert (said.error, said.unreadable) == (None, None)


def test_bytes_that_are_no_batch_come_again_and_are_unreadable_then() -> None:
    """All of them: nobody knows where one of their records ends."""
    data = b"\xff" * 200
    offsets, said = drain(acquired(data, (0, 3, 1)))
    assert (offsets, said.gaps, said.released) == ([], [], [0, 1, 2, 3])
    assert isinstance(said.error, CorruptRecordException)
    offsets, said = drain(acquired(data, (0, 3, 2)))
    assert (offsets, said.gaps, said.released) == ([], [], [])
    assert said.unreadable is not None
    assert said.unreadable[:3] == (0, 3, data)


def test_codec_that_is_missing_is_no_damage() -> None:
    """Whoever installs it can read the records."""
    raw = bytearray(batch(0, [0, 1]))
    raw[22] |= 5  # no client has this one
    raw[17:21] = calc_crc32c(bytes(raw[21:])).to_bytes(4)
    for count in (1, 2):
        with pytest.raises(UnsupportedCodecError):
            drain(acquired(bytes(raw), (0, 1, count)))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 5), min_size=1)), max_size=5),
    st.sets(st.integers(0, 40), min_size=1),
    st.integers(1, 4),
    st.sampled_from([1, 2]),
)
def test_each_acquired_offset_is_handed_out_or_said(
    batches: list[tuple[int, set[int]]], wanted: set[int], most: int, count: int
) -> None:
    """Whatever lies in the log, and however many are taken at a time: exactly one of them.

    Where the log may not be what it says, all of a first delivery comes again.
    """
    data, at, stored = b"", 0, set[int]()
    for gap, deltas in batches:
        at += gap
        data += batch(at, sorted(deltas))
        stored |= {at + delta for delta in deltas}
        at += max(deltas) + 1
    ranges = [(offset, offset, count) for offset in sorted(wanted)]
    offsets, said = drain(acquired(data, *ranges), most)
    if said.error is not None:
        assert count == 1
        assert (offsets, said.gaps, said.released) == ([], [], sorted(wanted))
        return
    assert offsets == sorted(wanted & stored)
    assert sorted(offsets + said.gaps + said.released) == sorted(wanted)
    assert all(offset >= at for offset in said.released)
    assert said.unreadable is None


def test_nothing_is_released_on_its_last_delivery() -> None:
    """The broker would give it up, and nobody would have seen it."""
    data = batch(0, [0, 1], bad=True) + batch(2, [0, 1])
    offsets, said = drain(acquired(data, (0, 1, 1), (2, 3, 2), limit=2))
    assert offsets == [2, 3]
    assert not said.released
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (0, 1)


@pytest.mark.parametrize("size", [17, 20, 27, 60])
def test_batch_that_is_cut_off_on_the_last_delivery_is_unreadable(size: int) -> None:
    """Nobody knows what it holds; it comes again before that."""
    data = batch(0, [0, 1]) + batch(2, [0, 1])[:size]
    offsets, said = drain(acquired(data, (0, 3, 5), limit=5))
    assert (offsets, said.gaps, said.released) == ([0, 1], [], [])
    assert said.unreadable is not None
    assert said.unreadable[:3] == (2, 3, b"")
    offsets, said = drain(acquired(data, (0, 3, 4), limit=5))
    assert (offsets, said.gaps, said.released, said.unreadable) == ([0, 1], [], [2, 3], None)


def test_what_the_bytes_do_not_reach_on_the_last_delivery_is_unreadable() -> None:
    """It reaches the dead letters, as far as anything is known of it."""
    offsets, said = drain(acquired(batch(0, [0, 1]), (0, 2, 5), limit=5))
    assert offsets == [0, 1]
    assert not said.released
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (2, 2)


@pytest.mark.parametrize(
    "data, ranges",
    [
        (batch(64, [0, 1, 2, 3]), (0, 3, 1)),
        (batch(2, [0, 1, 2, 3]), (0, 3, 1)),
        (batch(0, [0, 1]) + batch(34, [0, 1]), (0, 3, 1)),
        (batch(0, [0, 1, 2]) + batch(34, [0, 1]), (0, 3, 1)),
        (batch(0, [0, 1]) + batch(34, [0, 1])[:27], (0, 3, 1)),
    ],
    ids=["alone", "a little", "the last one", "the last one of one record", "one that is cut off"],
)
def test_batch_that_lies_elsewhere_costs_no_record(
    data: bytes, ranges: tuple[int, int, int]
) -> None:
    """No checksum covers where a batch begins: one bit of it, and what was acquired would be gaps, and gone."""
    offsets, said = drain(acquired(data, ranges))
    assert not offsets + said.gaps
    assert said.released == [0, 1, 2, 3]
    assert isinstance(said.error, CorruptRecordException)


def test_what_comes_again_is_read_beside_what_may_lie_elsewhere() -> None:
    """It was released before: only what is delivered for the first time comes again."""
    data = batch(0, [0, 1]) + batch(34, [0, 1])
    offsets, said = drain(acquired(data, (0, 1, 2), (2, 3, 1)))
    assert (offsets, said.gaps, said.released) == ([0, 1], [], [2, 3])
    assert isinstance(said.error, CorruptRecordException)
    offsets, said = drain(acquired(batch(2, [0, 1]), (0, 1, 1), (2, 3, 2)))
    assert (offsets, said.gaps, said.released) == ([2, 3], [], [0, 1])
    # What has come again may be gone; then nothing says that the rest lies elsewhere.
    offsets, said = drain(acquired(batch(2, [0, 1]), (0, 1, 2), (2, 3, 1)))
    assert (offsets, said.gaps, said.released, said.error) == ([2, 3], [0, 1], [], None)
    offsets, said = drain(acquired(data, (0, 1, 1), (2, 3, 2)))
    assert (offsets, said.gaps, said.released, said.error) == ([0, 1], [2, 3], [], None)
    last = acquired(data, (0, 1, 2), (2, 3, 1), limit=2)
    last.keep_last_deliveries()
    offsets, said = drain(last)
    assert (offsets, said.gaps, said.released, said.error) == ([0, 1], [], [], None)


def test_last_record_in_a_batch_of_its_own_is_where_it_should_be() -> None:
    """Batches behind it are other members'."""
    data = batch(0, [0, 1]) + batch(3, [0]) + batch(34, [0, 1])
    offsets, said = drain(acquired(data, (0, 3, 1)))
    assert (offsets, said.gaps, said.error) == ([0, 1, 3], [2], None)


def test_unreadable_batch_that_says_to_lie_elsewhere_leaves_nothing_unsaid() -> None:
    """What nobody says anything of is given up by the broker in the end, and reaches no dead letters."""
    offsets, said = drain(acquired(batch(64, [0, 1], bad=True), (0, 3, 2)))
    assert not offsets + said.gaps + said.released
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (0, 3)


@pytest.mark.parametrize("first", [2, 3])
def test_compacted_offsets_before_an_unreadable_batch_are_gaps(first: int) -> None:
    """The batch itself is unreadable."""
    data = batch(0, [0]) + batch(first, [*range(4 - first)], bad=True)
    offsets, said = drain(acquired(data, (0, 3, 2)))
    assert (offsets, said.gaps) == ([0], [*range(1, first)])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (first, 3)


def test_records_that_were_compacted_meanwhile_are_gaps_with_their_second_delivery() -> None:
    """They were acquired before, and their batch is not there any more."""
    offsets, said = drain(acquired(batch(64, [0]), (0, 3, 2)))
    assert said.gaps == [0, 1, 2, 3]
    assert not offsets + said.released


@pytest.mark.parametrize("first, last", [(3, 5), (4, 4), (4, 5), (3, 4)])
def test_records_beside_an_unreadable_one_of_their_batch_are_read(first: int, last: int) -> None:
    """The second time; before, it and what follows come again. Those that are not acquired are left out."""
    raw, wanted = damaged(0), set(range(first, last + 1))
    offsets, said = drain(acquired(raw, (first, last, 1)))
    assert (offsets, said.gaps) == (sorted(wanted & {3}), [])
    assert said.released == sorted(wanted - {3})
    for most in (1, 100):
        offsets, said = drain(acquired(raw, (first, last, 2)), most)
        assert (offsets, said.gaps, said.released) == (sorted(wanted - {4}), [], [])
        assert said.unreadable is not None
        assert (said.unreadable.first, said.unreadable.last) == (4, 4)


def test_each_unreadable_record_of_a_batch_is_told_by_itself() -> None:
    """With gaps beside them, and what can be read between them."""
    names: dict[int, list[tuple[str, bytes | None]]] = {n: [("name", b"x")] for n in (2, 6)}
    rows = [(n, n, None, b"v", names.get(n, [])) for n in (0, 2, 4, 6, 8)]
    raw = records_of(rows).replace(b"name", b"\xff\xfe\xfd\xfc")
    records, told = acquired(with_checksum(raw), (0, 9, 2)), []
    while not records.is_empty:
        taken = records.take(ASSIGNMENT, 100, 1 << 20)
        found = taken.unreadable
        told.append(([m.position for m in taken.messages], taken.gaps, found and found[:2]))
        assert not taken.error
    assert told[0] == ([0], [], None)
    assert told[1][2] == (2, 2)
    assert [offset for offsets, _, _ in told for offset in offsets] == [0, 4, 8]
    assert sorted(gap for _, gaps, _ in told for gap in gaps) == [1, 3, 5, 7]
    assert [found for *_, found in told if found] == [(2, 2), (6, 6)]


def test_what_the_client_alone_cannot_read_is_read_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each record can be read, nobody knows what is wrong: all of it is unreadable."""

    def fail(*_: object) -> None:
        raise ValueError("anything")

    monkeypatch.setattr(Unpacker, "take", fail)
    offsets, said = drain(acquired(damaged(0), (3, 5, 2)))
    assert (offsets, said.gaps, said.released) == ([3, 5], [], [])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (4, 4)
    offsets, said = drain(acquired(batch(0, [0, 1]), (0, 1, 2)))
    assert (offsets, said.gaps, said.released) == ([], [], [])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (0, 1)


def test_unreadable_batch_of_unknown_length_ends_with_what_was_acquired_together() -> None:
    """The broker says that those offsets lie in the log; what was acquired behind them may be read."""
    data = batch(0, [0], last=1, bad=True) + batch(3, [0, 1])
    offsets, said = drain(acquired(data, (0, 1, 2), (3, 4, 2)))
    assert (offsets, said.gaps, said.released) == ([3, 4], [], [])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (0, 1)


def test_damaged_batch_that_says_to_reach_farther_is_given_up_once() -> None:
    """What was acquired behind it lies in the next batch, which can be read."""
    raw = bytearray(batch(0, [0, 1]))
    raw[26] = 3  # the last offset's distance
    data = bytes(raw) + batch(2, [0, 1])
    offsets, said = drain(acquired(data, (0, 1, 2), (2, 3, 2)))
    assert (offsets, said.gaps, said.released) == ([2, 3], [], [])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (0, 1)


def test_batch_of_unknown_length_may_be_the_second_one() -> None:
    """It ends with the range that holds it."""
    data = batch(0, [0, 1]) + batch(3, [0], last=1, bad=True)
    offsets, said = drain(acquired(data, (0, 1, 2), (3, 4, 2), (6, 7, 1)))
    assert (offsets, said.gaps, said.released) == ([0, 1], [], [6, 7])
    assert said.unreadable is not None
    assert (said.unreadable.first, said.unreadable.last) == (3, 4)


def test_offsets_of_a_batch_that_was_emptied_are_gaps_before_what_is_damaged() -> None:
    """Nothing is wrong with those."""
    data = emptied(batch(0, [0, 1])) + batch(2, [0, 1], bad=True)
    offsets, said = drain(acquired(data, (0, 3, 1)))
    assert (offsets, said.gaps, said.released) == ([], [0, 1], [2, 3])
    assert said.error is not None


def test_deliveries_of_a_range_are_those_of_its_offsets() -> None:
    """Both ends count; the first delivery is none."""
    records = acquired(batch(0, [0, 1, 2, 3, 4, 5]), (0, 1, 2), (2, 3, 1), (4, 5, 3))
    assert records.counts(0, 5) == [2, 2, 3, 3]
    assert (records.counts(1, 4), records.counts(2, 3)) == ([2, 3], [])
    assert (records.counts(0, 0), records.counts(5, 9)) == ([2], [3])


@pytest.mark.parametrize("kind", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_bomb_comes_again_and_is_unreadable_then(kind: int) -> None:
    """What is behind it is read, and nothing of it is decompressed."""
    most, small, large = 1 << 20, batch(0, [0, 1]), bomb(kind, offset=2, records=2)
    data = small + large + batch(4, [0])

    def read() -> None:
        offsets, said = drain(acquired(data, (0, 4, 1)))
        assert (offsets, said.gaps, said.released) == ([0, 1], [], [2, 3, 4])
        assert isinstance(said.error, LargeBatchError)
        offsets, said = drain(acquired(data, (0, 4, 2)))
        assert (offsets, said.gaps, said.released) == ([0, 1, 4], [], [])
        assert said.unreadable is not None
        assert (said.unreadable.first, said.unreadable.last) == (2, 3)

    assert peak(read) < 2 * most + 4 * len(data)


def test_batches_beside_what_was_acquired_are_passed_over() -> None:
    """Those before it, as brokers send them, and those behind it, which are other members'."""
    data = batch(0, [0, 1, 2, 3]) + batch(4, [0, 1, 2, 3]) + batch(8, [0, 1, 2, 3])
    offsets, said = drain(acquired(data, (4, 7, 1)))
    assert offsets == [4, 5, 6, 7]
    assert (said.gaps, said.released, said.error) == ([], [], None)


def test_deliveries_are_those_of_each_range() -> None:
    """The first one is not told of."""
    records = acquired(batch(0, [0, 1, 2, 3, 4, 5]), (0, 1, 2), (2, 3, 1), (4, 5, 3))
    assert records.deliveries == {0: 2, 1: 2, 4: 3, 5: 3}
