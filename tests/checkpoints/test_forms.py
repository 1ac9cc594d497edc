"""What holds for the text and for the bytes of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from consumer_sdk.checkpoints.forms import covered
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.trackers import (
    decode_checkpoint,
    decode_checkpoint_bytes,
    encode_checkpoint,
    encode_checkpoint_bytes,
)
from tests.trackers.codec import (
    PARTITION,
    assert_sound,
    checkpoints,
    decode,
    decode_bytes,
    encode,
    encode_bytes,
)


def through_text(checkpoint: Checkpoint, identity: str | None = None) -> Checkpoint:
    """Written as JSON and read."""
    return decode(encode(checkpoint)[0], identity)


def through_bytes(checkpoint: Checkpoint, identity: str | None = None) -> Checkpoint:
    """Written as bytes and read."""
    return decode_bytes(encode_bytes(checkpoint)[0], identity)


both = pytest.mark.parametrize("through", [through_text, through_bytes])
MADE_FOR = r"was made for .*; delete it, or use another group or store root"
Through = Callable[..., Checkpoint]


@both
@pytest.mark.parametrize(
    "checkpoint, problem",
    [
        (Checkpoint(5, 6, ((9, 8),)), "ranges out of order at 9"),
        (Checkpoint(5, 6, ((5, 9),)), "ranges out of order at 5"),
        (Checkpoint(5, 6, ((8, 9), (9, 12))), "ranges out of order at 9"),
        (Checkpoint(None, 6, ((8, 9), (7, 7))), "ranges out of order at 7"),
        (Checkpoint(None, None, ((8, 9),)), "no position to read from"),
        (Checkpoint(5, 6, (), {6: (-1, 0.0)}), "-1 is not a count"),
        (Checkpoint(5, 6, (), {6: (2**31, 0.0)}), "2147483648 is not a count"),
    ],
)
def test_checkpoint_that_contradicts_itself_is_refused(
    through: Through, checkpoint: Checkpoint, problem: str
) -> None:
    """Its checksum is right: whoever wrote it had a mistake."""
    with pytest.raises(CheckpointFormatError, match=problem):
        through(checkpoint)


@pytest.mark.parametrize("due", [math.nan, math.inf, -math.inf])
def test_due_time_that_is_no_time_is_refused(due: float) -> None:
    """It would be due at once, or never."""
    with pytest.raises(CheckpointFormatError, match="is not a time"):
        through_text(Checkpoint(5, 6, (), {6: (1, due)}))


@both
@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(),
        Checkpoint(resume=6),
        Checkpoint(5),
        Checkpoint(None, None, (), {6: (1, 2.0)}),
        Checkpoint(20, 10, ((22, 22),)),
        Checkpoint(5, 30, ((8, 9),), {7: (1, 2.0)}),
        Checkpoint(None, 8, ((6, 9),), {}),
        Checkpoint(-5, -4, ((-3, -3),), {-4: (2**31 - 1, -1.5)}),
        Checkpoint(5, 5, ended=True, identity=""),
        Checkpoint(5, 6, identity="a\ud800b\x00é😀"),
    ],
)
def test_unusual_checkpoint_is_none_the_less_one(through: Through, checkpoint: Checkpoint) -> None:
    """A queue's, a pin, one whose resume was overtaken by a restored range, or overtook one."""
    assert through(checkpoint) == checkpoint


@both
@pytest.mark.parametrize("stored, now", [(None, "a"), ("a", None), (None, None), ("a", "a")])
def test_unknown_identity_fits_any(through: Through, stored: str | None, now: str | None) -> None:
    """Where one side does not know it, nothing can be said; what was stored stays."""
    assert through(Checkpoint(5, 6, identity=stored), now).identity == stored


@both
def test_other_identity_is_refused(through: Through) -> None:
    """A stream that was deleted and made again has other records at the same positions."""
    with pytest.raises(CheckpointMismatchError, match="for identity 'a', not 'b'; delete it, or"):
        through(Checkpoint(5, 6, identity="a"), "b")


@pytest.mark.parametrize(
    "broker, partition",
    [
        ("pulsar", PARTITION),
        ("kafka", Partition("payments", "0")),
        ("kafka", Partition("orders", "1")),
        ("kafka/orders", Partition("0", "0")),
    ],
)
def test_checkpoint_of_something_else_is_refused_in_both_forms(
    broker: str, partition: Partition
) -> None:
    """Topics are never mixed up in silence; the error says what to do."""
    wanted: dict[str, Any] = {"broker": broker, "partition": partition, "identity": None}

    with pytest.raises(CheckpointMismatchError, match=MADE_FOR):
        decode_checkpoint(encode(Checkpoint(5, 6))[0], decode_position=int, **wanted)
    with pytest.raises(CheckpointMismatchError, match=MADE_FOR):
        decode_checkpoint_bytes(encode_bytes(Checkpoint(5, 6))[0], **wanted)


@given(checkpoints())
def test_whatever_is_read_is_sound(checkpoint: Checkpoint) -> None:
    """The checks of both forms are those of the tests."""
    assert_sound(checkpoint)
    assert_sound(through_bytes(checkpoint))


@pytest.mark.parametrize(
    "checkpoint, kept, position",
    [
        (Checkpoint(5, 6, ((8, 9), (11, 12))), 2, None),
        (Checkpoint(5, 6, ((8, 9), (11, 12))), 1, 9),
        (Checkpoint(5, 6, ((8, 9), (11, 12))), 0, 5),
        (Checkpoint(None, 6, ((8, 9), (11, 12))), 0, 6),
        (Checkpoint(5, 6), 0, None),
    ],
)
def test_covered_position_is_none_for_everything_only(
    checkpoint: Checkpoint, kept: int, position: Position | None
) -> None:
    """With the first record stuck and no room the answer still says that ranges were dropped."""
    assert covered(checkpoint, kept) == position


def test_both_forms_say_the_same_of_what_does_not_fit() -> None:
    """A receipt stays open or not, whatever the form."""
    checkpoint = Checkpoint(None, 7, ((8, 9), (11, 12)))
    names: dict[str, Any] = {"broker": "kafka", "partition": PARTITION, "max_size": 0}

    assert encode_checkpoint(checkpoint, encode_position=str, **names)[1] == 7
    assert encode_checkpoint_bytes(checkpoint, **names)[1] == 7
