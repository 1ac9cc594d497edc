"""Checkpoints as bytes: what is written is read back, and fits its budget."""

from __future__ import annotations

import zlib
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints import binary as checkpoint_binary
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
)
from consumer_sdk.records import Checkpoint, Partition
from tests.trackers.codec import SEQUENCE, checkpoints, decode_bytes, encode_bytes, rounded


class Place(NamedTuple):
    """A tuple that would come back as another."""

    ledger: int


@given(checkpoints())
def test_bytes_are_read_back_as_the_checkpoint_was(checkpoint: Checkpoint) -> None:
    """Whole numbers and tuples, any identity; due times to the millisecond."""
    data, covered = encode_bytes(checkpoint)

    assert covered is None
    assert decode_bytes(data) == rounded(checkpoint)


@given(checkpoints(), st.integers(0, 900))
def test_bytes_cut_to_a_budget_cover_what_they_say(checkpoint: Checkpoint, size: int) -> None:
    """The lowest ranges stay; what stays is a checkpoint, and covers nothing new."""
    data, covered = encode_bytes(checkpoint, max_size=size)
    kept = decode_bytes(data)

    assert len(data) <= size or not (kept.ranges or kept.attempts)
    assert checkpoint.covers(kept)
    assert (kept.watermark, kept.resume) == (checkpoint.watermark, checkpoint.resume)
    assert kept.attempts.items() <= rounded(checkpoint).attempts.items()
    assert (covered is None) == (kept.ranges == checkpoint.ranges)
    if kept.ranges and covered is not None:
        assert covered == kept.ranges[-1][1]


def test_bytes_are_those_of_version_1() -> None:
    """A later release reads what this one has stored."""
    head = "c501f2cca11b5d8c9bcb0003616263"
    rows = "0c00040a020402c186e043f80204caf8"
    checkpoint = Checkpoint(5, 6, ((8, 9), (300, 9000)), {7: (2, 1.5)}, identity="abc")

    data = bytes.fromhex(head + rows + "750e7f55")
    assert encode_bytes(checkpoint) == (data, None)
    assert decode_bytes(data) == checkpoint


def test_application_makes_it_version_2() -> None:
    """Without one nothing has changed; with one, an older release says what it cannot read."""
    checkpoint = Checkpoint(5, 6, ((8, 9),), identity="abc", application="v2")
    data, _ = encode_bytes(checkpoint)

    assert data[:2] == bytes((0xC5, 2))
    assert decode_bytes(data) == checkpoint
    assert encode_bytes(replace(checkpoint, application=None))[0][:2] == bytes((0xC5, 1))


def test_time_of_writing_makes_it_version_3() -> None:
    """Or 4, with an application: an older release would not wait as long as was asked for."""
    checkpoint = Checkpoint(5, 6, attempts={7: (1, 5000.0)}, written=1400.0)
    named = replace(checkpoint, application="v2")

    for each, version in ((checkpoint, 3), (named, 4)):
        data, _ = encode_bytes(each)
        assert (data[1], decode_bytes(data)) == (version, each)


def test_version_2_without_an_application_is_refused() -> None:
    """The same checkpoint is written in one way only."""
    data, _ = encode_bytes(Checkpoint(5, 6, application=""))
    hollow = data[:-4].replace(b"\xff\xff\x00\x00", b"\xff\xff\xff\xff")

    assert decode_bytes(data).application == ""
    with pytest.raises(CheckpointFormatError, match="no application"):
        decode_bytes(hollow + zlib.crc32(hollow).to_bytes(4, "big"))


def test_application_is_covered_by_the_checksum() -> None:
    """One that was changed on the way is refused."""
    data, _ = encode_bytes(Checkpoint(5, 6, application="v2"))

    with pytest.raises(CheckpointFormatError, match="checksum"):
        decode_bytes(data.replace(b"v2", b"v3"))


def test_commit_metadata_holds_some_thousand_ranges() -> None:
    """4 096 characters of 15 bits are 7 680 bytes, for every n-th record of a Kafka log."""
    for apart, most in ((2, 30_000), (95, 3_800)):
        ranges = tuple((10**9 + n, 10**9 + n) for n in range(apart, 40_000 * apart, apart))
        checkpoint = Checkpoint(10**9, 10**9 + 1, ranges, identity="i" * 22)
        data, covered = encode_bytes(checkpoint, 7_680)
        kept = decode_bytes(data).ranges
        assert len(kept) > most
        assert covered == kept[-1][1]


def test_wide_positions_take_what_lies_between_them() -> None:
    """186 bits of a sequence number are written once."""
    ranges = tuple(((SEQUENCE + 1000 * i, 0), (SEQUENCE + 1000 * i, 9)) for i in range(1, 1001))
    data, _ = encode_bytes(Checkpoint((SEQUENCE, 0), (SEQUENCE, 1), ranges))

    assert len(data) < 5 * 1000 + 80


@pytest.mark.parametrize(
    "position",
    [
        *("7", b"7", 7.0, Fraction(7), True, [7], {7}),
        *((), (7.5,), ("7",), (None,), ((7,),), tuple(range(9)), Place(7)),
        *(2**264, (0, -(2**264))),
    ],
    ids=repr,
)
def test_position_of_another_kind_is_refused(position: Any) -> None:
    """It would come back as something else; the error names what to use instead."""
    ranges = ((position, position),)
    for checkpoint in (Checkpoint(position), Checkpoint(None, position), Checkpoint(0, 1, ranges)):
        with pytest.raises(ConfigurationError, match=r"form: .*; encode_checkpoint takes any"):
            encode_bytes(checkpoint)


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(5, (6, 0)),
        Checkpoint((5, 0), (5, 1, 0)),
        Checkpoint(5, 6, ((8, 9), (10.5, 11))),
        Checkpoint(5, 6, ((8, 9), (1000.0, 1100.0))),
        Checkpoint(5, 6, ((8, 9), ((10, 0), (11, 0)))),
        Checkpoint((5, 0), (6, 0), (((7, 0), (8, 0)), ((9,), (10, 0, 0)))),
        Checkpoint((5, 0), (6, 0), (((7, 0), (8, 0)), (9, 10))),
        Checkpoint((5, 0), (6, 0), (((7, 0), (8, 0)), ("ab", "cd"))),
        Checkpoint(5, 6, (), {(7, 0): (1, 0.0)}),
        Checkpoint(5, 6, (), {"7": (1, 0.0)}),
        Checkpoint(None, None, ((None, None),)),
        Checkpoint(5, 6, (), {7: (1, float("nan"))}),
        Checkpoint(5, 6, (), {7: (1.5, 1.0)}),  # type: ignore[dict-item] # a mistake of a caller
        Checkpoint(5, 6, identity="x" * 65_535),
        Checkpoint(5, 6, application="x" * 65_535),
    ],
)
def test_checkpoint_that_cannot_be_written_is_refused(checkpoint: Checkpoint) -> None:
    """Positions that are not alike, what is no number, an identity without end."""
    with pytest.raises(ConfigurationError, match="of kafka orders/0 without a binary form"):
        encode_bytes(checkpoint)


def test_longest_identity_is_written() -> None:
    """And told from none."""
    checkpoint = Checkpoint(5, 6, identity="x" * 65_534)

    assert decode_bytes(encode_bytes(checkpoint)[0]) == checkpoint


def test_what_belongs_to_another_is_named() -> None:
    """Stream and partition are in the bytes as a digest alone."""
    data, _ = encode_bytes(Checkpoint(5, 6))

    with pytest.raises(
        CheckpointMismatchError, match=r"another broker, .* than 'local', 'orders/0'"
    ):
        checkpoint_binary.decode_checkpoint_bytes(
            data,
            broker="local",
            partition=Partition("orders", "0"),
            identity=None,
        )


def test_budget_beyond_what_is_read_is_cut_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written can be read: the reader's own limit holds for the writer."""
    monkeypatch.setattr(checkpoint_binary, "MAX_SIZE", 1_000)
    ranges = tuple((2 * i, 2 * i) for i in range(4, 5_000))
    data, covered = encode_bytes(Checkpoint(5, 6, ranges), 10**9)

    assert 990 < len(data) <= 1_000
    assert decode_bytes(data).ranges[-1][1] == covered


@pytest.mark.parametrize("written", [None, 5.0])
@pytest.mark.parametrize(
    "checkpoint",
    [Checkpoint(ranges=(((1, 2), (1, 3)),)), Checkpoint(attempts={(1, 2): (1, 3.0)})],
)
def test_bytes_that_are_cut_to_no_position_are_read(
    checkpoint: Checkpoint, written: float | None
) -> None:
    """Nothing fits that would say how positions look."""
    data, _ = encode_bytes(replace(checkpoint, written=written), max_size=20)
    assert decode_bytes(data) == Checkpoint(written=written)
