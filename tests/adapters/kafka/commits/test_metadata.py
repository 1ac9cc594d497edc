"""Checkpoints in commit metadata: bound to their place, never misread, never in the way."""

from __future__ import annotations

import random
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.commits.metadata import (
    ALPHABET,
    HEAD_SIZE,
    MOST,
    at_offset,
    offset_of,
    pack,
    read_metadata,
    room,
    unpack,
    write_metadata,
)
from consumer_sdk.checkpoints.rows import read_bit_set
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Checkpoint, Committed, Partition
from consumer_sdk.trackers import encode_checkpoint_bytes

ORDERS = Partition("orders", "3")
OFFSETS = st.integers(0, 2**63 - 1)


def write(checkpoint: Checkpoint, limit: int = MOST, **place: Any) -> tuple[str, int | None]:
    """As the group "billing" commits it for the partition."""
    offset = offset_of(checkpoint)
    assert offset is not None
    options: dict[str, Any] = {"group": "billing", "partition": ORDERS} | place
    text, covered, _ = write_metadata(checkpoint, offset, limit=limit, **options)
    return text, covered


def read(text: str | None, offset: int, **place: Any) -> tuple[Committed, str | None]:
    """As the group "billing" reads it back."""
    options: dict[str, Any] = {"group": "billing", "partition": ORDERS, "identity": "id"} | place
    return read_metadata(text, offset, **options)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Such as trackers make, of offsets."""
    start = draw(st.integers(0, 2**62))
    ends = sorted(draw(st.sets(st.integers(start + 1, start + 5_000), max_size=40)))
    ranges = tuple(zip(ends[::2], ends[1::2], strict=False))
    tries = st.tuples(st.integers(1, 9), st.integers(0, 2_000_000_000).map(float))
    attempts = draw(st.dictionaries(st.integers(start, start + 5_000), tries, max_size=5))
    return replace(at_offset(start), ranges=ranges, attempts=attempts, identity="id")


@given(checkpoint=checkpoints(), is_copy=st.booleans())
def test_checkpoint_is_read_back(checkpoint: Checkpoint, *, is_copy: bool) -> None:
    """All of it, where there is more to it than its offset; and whether a store has it."""
    text, covered = write(checkpoint, is_copy=is_copy)
    committed, flaw = read(text, offset_of(checkpoint) or 0)
    assert (covered, flaw) == (None, None)
    bare = replace(checkpoint, identity=committed.checkpoint.identity)
    assert committed == Committed(bare, is_copy=is_copy)


@given(checkpoints(), st.integers(0, 300))
def test_text_keeps_within_any_limit_and_says_what_it_covers(
    checkpoint: Checkpoint, limit: int
) -> None:
    """T8: top ranges go first, then all but the head, then that; the offset always counts."""
    text, covered = write(checkpoint, limit)
    offset = offset_of(checkpoint) or 0
    kept = read(text, offset)[0].checkpoint
    assert len(text) <= limit
    assert checkpoint.covers(replace(kept, identity="id"))
    assert kept.resume == offset
    assert (covered is None) == (kept.ranges == checkpoint.ranges)
    if covered is not None:
        assert covered == (kept.ranges[-1][1] if kept.ranges else offset - 1)


@pytest.mark.parametrize(
    "checkpoint, offset",
    [
        (Checkpoint(), None),
        (Checkpoint(watermark=4), 5),
        (Checkpoint(watermark=4, resume=4), 5),
        (Checkpoint(watermark=4, resume=9), 9),
        (Checkpoint(resume=0), 0),
        (Checkpoint(watermark=4, resume=5, ranges=((6, 9),)), 5),
    ],
)
def test_offset_is_the_first_that_may_be_unsettled(
    checkpoint: Checkpoint, offset: int | None
) -> None:
    """T10: the commit passes gaps that compaction and transactions leave, never a hole."""
    assert offset_of(checkpoint) == offset


@pytest.mark.parametrize(
    "checkpoint, kept",
    [
        (Checkpoint(4, 9, ((11, 12),)), Checkpoint(8, 9, ((11, 12),))),
        (Checkpoint(4, None, ((11, 12),)), Checkpoint(4, 5, ((11, 12),))),
        (Checkpoint(None, 0, ((1, 2),)), Checkpoint(None, 0, ((1, 2),))),
        (Checkpoint(None, 15, ((10, 20), (22, 23))), Checkpoint(14, 15, ((15, 20), (22, 23)))),
        (Checkpoint(None, 15, ((10, 15), (22, 23))), Checkpoint(14, 15, ((15, 15), (22, 23)))),
        (Checkpoint(4, 15, ((10, 12),), {16: (1, 2.0)}), Checkpoint(14, 15, (), {16: (1, 2.0)})),
    ],
    ids=[
        "gap",
        "no-resume",
        "first",
        "retention-cut-a-range",
        "retention-left-one",
        "retention-cut-all",
    ],
)
def test_checkpoint_is_read_back_with_its_offset_as_watermark(
    checkpoint: Checkpoint, kept: Checkpoint
) -> None:
    """Nothing below an offset is unsettled, also where retention has cut into a range."""
    text, _ = write(checkpoint)
    assert read(text, offset_of(checkpoint) or 0) == (Committed(kept, is_copy=False), None)


@pytest.mark.parametrize("is_copy, size", [(False, 23), (True, 28)])
def test_position_alone_is_a_mark_that_people_can_read(*, is_copy: bool, size: int) -> None:
    """As long for any offset, and what lag tools print beside it says who wrote it."""
    text, _ = write(Checkpoint(41, 42, identity="id"), is_copy=is_copy)
    assert text.startswith("consumer-sdk/1 copy " if is_copy else "consumer-sdk/1 ")
    assert text.isascii()
    assert len(text) == size < HEAD_SIZE
    assert read(text, 42) == (Committed(Checkpoint(41, 42), is_copy=is_copy), None)


def test_application_goes_with_the_position() -> None:
    """A start that is made once for an application has to be known at the next one."""
    checkpoint = Checkpoint(41, 42, identity="id", application="v2")
    assert read(write(checkpoint)[0], 42) == (Committed(checkpoint, is_copy=False), None)


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_leaves_no_room_for_the_rest_is_said_to_be_missing(*, is_copy: bool) -> None:
    """A position without its application is not one of no application: nobody starts anew there."""
    checkpoint = Checkpoint(41, 42, identity="id", application="v2")
    text, covered = write(checkpoint, HEAD_SIZE, is_copy=is_copy)
    assert (len(text) <= HEAD_SIZE, covered) == (True, None)
    committed, flaw = read(text, 42)
    assert committed == Committed(at_offset(42), is_copy=is_copy, is_partial=True)
    assert flaw == "the broker's limit left no room for more"


def test_position_alone_forgets_no_attempt() -> None:
    """There was none to drop."""
    fitted = write_metadata(at_offset(42), 42, group="billing", partition=ORDERS, limit=MOST)
    assert fitted[1:] == (None, 0)


HOLED = Checkpoint(41, 42, ((44, 50), (52, 60)), {42: (2, 5.0)}, identity="id")


@pytest.mark.parametrize("length", range(15))
def test_checkpoint_that_fits_exactly_is_written_whole(length: int) -> None:
    """Of any number of bytes: those that fill the last character, and those that do not."""
    checkpoint = replace(HOLED, identity="i" * length)
    text, _ = write(checkpoint)
    assert write(checkpoint, len(text)) == (text, None)


@pytest.mark.parametrize(
    "place",
    [{"group": "other"}, {"partition": Partition("orders", "4")}, {}],
    ids=["group", "partition", "offset"],
)
@pytest.mark.parametrize("checkpoint", [HOLED, Checkpoint(41, 42)], ids=["holed", "bare"])
def test_metadata_that_was_copied_elsewhere_is_foreign(
    checkpoint: Checkpoint, place: dict[str, Any]
) -> None:
    """A tool that copies commits, or moves an offset and keeps what is beside it, is a reset."""
    offset = 42 if place else 43
    committed, flaw = read(write(checkpoint)[0], offset, **place)
    assert committed == Committed(at_offset(offset), is_foreign=True)
    assert flaw is not None
    assert "was written for another offset or place" in flaw


@pytest.mark.parametrize("text", ["", None])
def test_no_metadata_is_foreign_and_said(text: str | None) -> None:
    """Kafka's own tools write none."""
    flaw = "another program has written nothing"
    assert read(text, 42) == (Committed(at_offset(42), is_foreign=True), flaw)


@pytest.mark.parametrize(
    "text",
    ["written by hand", "consumer-sdk", "consumer-sdk/1", "consumer-sdk/1 12345678x", "\x00\ud800"],
    ids=repr,
)
def test_text_of_another_program_is_foreign_and_named(text: str) -> None:
    """T9: it is not misread, and the warning shows how it begins."""
    committed, flaw = read(text, 42)
    assert committed == Committed(at_offset(42), is_foreign=True)
    assert flaw is not None
    assert repr(text[:10])[:-1] in flaw


def test_other_incarnation_of_a_topic_leaves_the_offset_alone() -> None:
    """The ranges are of records that are gone; what an offset means there is the range check's."""
    committed, flaw = read(write(HOLED)[0], 42, identity="another")
    assert committed == Committed(at_offset(42), is_copy=False, is_partial=True)
    assert flaw is not None
    assert "'another'" in flaw


def test_position_alone_does_not_say_of_which_incarnation_it_is() -> None:
    """It counts: with a store that knows better; without, as any offset that is in range."""
    text, _ = write(Checkpoint(41, 42, identity="id"))
    assert read(text, 42, identity="another") == (Committed(at_offset(42), is_copy=False), None)


@pytest.mark.parametrize("identity", [None, "id"])
def test_unknown_incarnation_is_believed(identity: str | None) -> None:
    """Brokers before Kafka 3.0 have no topic ids."""
    text, _ = write(replace(HOLED, identity=identity))
    for now in (None, "id"):
        assert read(text, 42, identity=now)[0].checkpoint.ranges == HOLED.ranges


@pytest.mark.parametrize("is_copy", [False, True])
def test_newer_version_leaves_the_offset_alone_and_is_not_foreign(*, is_copy: bool) -> None:
    """The head is the same in all versions: this SDK stood there, with a store or without."""
    text = write(HOLED, is_copy=is_copy)[0].replace("sdk/1", "sdk/2")
    committed, flaw = read(text, 42)
    assert committed == Committed(at_offset(42), is_copy=is_copy, is_partial=True)
    assert flaw == "it has version 2, not 1"


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("rest", [" ", "-", " -", "x", " x", " Ā", "Ă", " ĂŇŇ", "\n", "\x00" * 99])
def test_rest_that_cannot_be_read_is_never_foreign(rest: str, *, is_copy: bool) -> None:
    """The head vouches for the offset; there was more, and nobody knows what."""
    head = write(Checkpoint(41, 42), is_copy=is_copy)[0]
    committed, flaw = read(head + rest, 42)
    assert committed == Committed(at_offset(42), is_copy=is_copy, is_partial=True)
    assert flaw is not None


def test_rest_that_is_cut_off_anywhere_is_never_foreign() -> None:
    """Down to the head: that alone looks like the mark of a position without more."""
    text = write(HOLED)[0]
    for end in range(24, len(text)):
        assert read(text[:end], 42)[0] == Committed(at_offset(42), is_copy=False, is_partial=True)


def _forged(checkpoint: Checkpoint) -> str:
    """With a seal and checksums that fit."""
    data, _ = encode_checkpoint_bytes(checkpoint, broker="kafka", partition=ORDERS)
    return f"{write(Checkpoint(41, 42))[0]} {pack(data)}"


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(41, 43, ((45, 46),)),
        Checkpoint(2**62, 42),
        Checkpoint(None, 42, ((2**62, 2**63),)),
        Checkpoint((41,), (42,), (((44,), (45,)),)),
        Checkpoint(),
    ],
    ids=["offset", "watermark", "no-watermark", "tuples", "empty"],
)
def test_checkpoint_of_another_offset_does_not_count(checkpoint: Checkpoint) -> None:
    """Records are suppressed by nothing that contradicts the offset beside it."""
    committed, flaw = read(_forged(checkpoint), 42)
    assert committed == Committed(at_offset(42), is_copy=False, is_partial=True)
    assert flaw is not None


@given(st.integers(0, 400), st.integers(0, 0x10FFFF).map(chr), OFFSETS)
@example(at=0, other="", offset=42)
def test_damaged_text_never_raises_and_never_settles_more(at: int, other: str, offset: int) -> None:
    """T9: whatever one character becomes, the offset counts; the rest is all there or not at all."""
    text = write(HOLED)[0]
    at = min(at, len(text))
    for damaged in (text[:at] + other + text[at + 1 :], text[:at], text[at:], other * at):
        for now in (42, offset):
            committed, _ = read(damaged, now)
            assert committed.checkpoint in (at_offset(now), HOLED)
            assert committed.checkpoint.resume == now


def test_spliced_rest_of_another_commit_does_not_count() -> None:
    """The head of one commit and the rest of another: the offset tells."""
    head = write(Checkpoint(41, 42))[0]
    rest = write(replace(HOLED, watermark=30, resume=31))[0].split(" ", 2)[2]
    assert read(f"{head} {rest}", 42)[0] == Committed(at_offset(42), is_copy=False, is_partial=True)


def test_ten_thousand_random_holes_are_cut_to_the_lowest_thousands() -> None:
    """T8: what fits stays, from the bottom up; the seed's figure is the benchmark's, too."""
    chance = random.Random(10_000)
    settled = [position for position in range(43, 60_000) if chance.random() < 0.5]
    checkpoint = replace(at_offset(42), ranges=tuple((n, n) for n in settled), identity="i" * 22)
    text, covered = write(checkpoint)
    kept = read(text, 42, identity="i" * 22)[0].checkpoint
    assert MOST - 4 <= len(text) <= MOST
    assert len(kept.ranges) > 3_700
    assert covered == kept.ranges[-1][1]
    assert kept.ranges == checkpoint.ranges[: len(kept.ranges)]
    assert room(MOST) > 2 * len(kept.ranges)


@pytest.mark.parametrize("limit, kept", [(MOST, 1_500), (600, 1), (HEAD_SIZE, 0), (0, 0)])
def test_attempts_that_do_not_fit_are_counted(limit: int, kept: int) -> None:
    """Whatever the limit leaves room for, and nothing is said of ranges."""
    tried = {n: (2, 1_700_000_000.0 + n / 7) for n in range(6, 8_006)}
    checkpoint = replace(at_offset(6), attempts=tried, identity="id")
    text, covered, forgotten = write_metadata(
        checkpoint, 6, group="billing", partition=ORDERS, limit=limit
    )
    found = read(text, 6)[0].checkpoint.attempts
    assert (covered, forgotten) == (None, len(tried) - len(found))
    assert len(found) >= kept


def test_half_of_the_records_done_takes_a_bit_for_each() -> None:
    """In any order; a run-length or a pair for each range would take four times as much."""
    settled = read_bit_set(b"\x80" + random.Random(1).randbytes(2_498) + b"\x01", 1_000_001)
    checkpoint = Checkpoint(999_999, 1_000_000, tuple(settled), identity="i" * 22)
    text, covered = write(checkpoint)
    assert covered is None
    assert len(text) < 20_000 / 15 + 60


packable = st.text(st.integers(min(ALPHABET), max(ALPHABET)).map(chr), max_size=64)


@given(st.binary(max_size=200))
@example(bytes(13))  # the end's one bit is the last of seven characters
@example(b"\xff" * 15)  # the last character of the alphabet
def test_bytes_are_read_back(data: bytes) -> None:
    """Whatever they are and end in, in the characters that `room` counts."""
    text = pack(data)
    assert unpack(text) == data
    assert room(len(text) - 1) < len(data) <= room(len(text))
    assert {ord(character) for character in text} <= set(ALPHABET)


@given(packable | st.text(max_size=64))
def test_text_is_refused_or_is_what_its_bytes_are_packed_as(text: str) -> None:
    """There is one text for each row of bytes; nothing but the typed error is raised."""
    try:
        data = unpack(text)
    except CheckpointFormatError:
        return
    assert pack(data) == text


@given(st.binary(max_size=60), st.data())
def test_text_that_is_cut_off_is_never_longer_bytes(data: bytes, draw: st.DataObject) -> None:
    """What a cut leaves is refused or shorter; checksums are for those that use it."""
    text = pack(data)
    cut = text[: draw.draw(st.integers(0, len(text) - 1))]
    with suppress(CheckpointFormatError):
        assert len(unpack(cut)) < len(data)


def test_alphabet_has_one_utf_16_unit_for_each_of_15_bits() -> None:
    """Brokers count these units; surrogates would be two of them, or none."""
    assert len(ALPHABET) == 2**15
    assert all(len(chr(point).encode("utf-16-le")) == 2 for point in ALPHABET)


def test_limit_of_a_broker_holds_7679_bytes() -> None:
    """15 bits a character, less the end."""
    assert room(4096) == 7679
    assert len(pack(b"\xff" * 7679)) == 4096
    assert room(MOST) == 7679
    assert room(0) < 0


@pytest.mark.parametrize("text", ["", "Ā", "abc", "\ud800", "耀\U0001f600", "ā" * 9, "ÿ耀"])
def test_text_of_others_is_refused(text: str) -> None:
    """The message shows where it ends."""
    with pytest.raises(CheckpointFormatError, match="at the end"):
        unpack(text)


def test_longest_text_that_a_request_carries_is_read_in_little_time_and_memory() -> None:
    """32 767 characters, whatever they are: linear, and no more than some hundred bytes each."""
    tracemalloc.start()
    began = time.process_time()
    for text in ("耿" * 32_767, "Ā" * 32_766 + "耀", "x" * 32_767):
        with suppress(CheckpointFormatError):
            unpack(text)
    elapsed, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed < 2.0
    assert peak < 300 * 32_767
