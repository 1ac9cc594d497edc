"""Checkpoints as JSON: what is written is read back, and fits its budget."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.trackers import checkpoint_json, decode_checkpoint, encode_checkpoint
from tests.trackers.codec import PARTITION, checkpoints, decode, encode, position_of


@given(checkpoints())
def test_checkpoint_is_read_back_as_it_was(checkpoint: Checkpoint) -> None:
    """Whole numbers and tuples, any identity text, exact times."""
    text, covered = encode(checkpoint)

    assert covered is None
    assert text.isascii()
    assert decode(text, read=position_of) == checkpoint


@given(checkpoints(), st.integers(0, 3000))
def test_checkpoint_cut_to_a_budget_covers_what_it_says(checkpoint: Checkpoint, size: int) -> None:
    """The lowest ranges stay; what stays is a checkpoint, and covers nothing new."""
    text, covered = encode(checkpoint, max_size=size)
    kept = decode(text, read=position_of)

    assert len(text) <= size or not (kept.ranges or kept.attempts)
    assert kept.ranges == checkpoint.ranges[: len(kept.ranges)]
    assert kept.attempts.items() <= checkpoint.attempts.items()
    assert (kept.watermark, kept.resume) == (checkpoint.watermark, checkpoint.resume)
    assert (covered is None) == (kept.ranges == checkpoint.ranges)
    if kept.ranges and covered is not None:
        assert covered == kept.ranges[-1][1]


def test_budget_drops_few_ranges_and_keeps_few_attempts() -> None:
    """Ranges go from the top; most of the budget is used."""
    ranges = tuple((10 * i, 10 * i + 3) for i in range(1, 1001))
    checkpoint = Checkpoint(5, 6, ranges, {10 * i + 5: (1, 0.0) for i in range(1, 1001, 100)})
    text, covered = encode(checkpoint, max_size=8_000)

    kept = decode(text)
    assert 6_000 < len(text) <= 8_000
    assert covered == kept.ranges[-1][1]
    assert kept.attempts == checkpoint.attempts


def test_attempts_alone_are_cut_to_the_budget_and_cover_everything() -> None:
    """Dropped attempts lose counts, no settled record: every receipt may be resolved."""
    checkpoint = Checkpoint(5, 6, (), dict.fromkeys(range(6, 2000), (2, 1.5)))
    text, covered = encode(checkpoint, max_size=4_000)

    kept = decode(text)
    assert (len(text) <= 4_000, covered) == (True, None)
    assert sorted(kept.attempts) == list(range(6, 6 + len(kept.attempts)))
    assert len(kept.attempts) > 50


def test_nothing_covered_without_a_watermark_is_not_all_covered() -> None:
    """With the first record stuck and no room, the answer still says that ranges were dropped."""
    text, covered = encode(Checkpoint(None, 7, ((8, 9), (11, 12))), max_size=0)

    assert decode(text).ranges == ()
    assert covered == 7


def test_text_is_readable_and_names_what_it_belongs_to() -> None:
    """An operator can read it, and tools can find its fields."""
    text, _ = encode(Checkpoint(5, 6, ((8, 9),), {6: (2, 1.5)}, identity="abc"))

    body = json.loads(text)
    assert body.pop("crc32") > 0
    assert body == {
        "version": 1,
        "broker": "kafka",
        "stream": "orders",
        "partition": "0",
        "identity": "abc",
        "watermark": "5",
        "resume": "6",
        "ranges": [["8", "9"]],
        "attempts": {"6": [2, 1.5]},
        "ended": False,
    }


def test_application_is_a_field_where_there_is_one() -> None:
    """Texts of before, which lack it, are read; and it is covered by the checksum."""
    text, _ = encode(Checkpoint(5, 6, application="v2"))

    assert json.loads(text)["application"] == "v2"
    assert decode(text).application == "v2"
    assert "application" not in encode(Checkpoint(5, 6))[0]
    for changed in ('"application":"v3"', '"application":2', '"application":null'):
        with pytest.raises(CheckpointFormatError):
            decode(text.replace('"application":"v2"', changed))


@pytest.mark.parametrize(
    "name, options",
    [
        ("broker", {"broker": "pulsar"}),
        ("stream", {"partition": Partition("payments", "0")}),
        ("partition", {"partition": Partition("orders", "1")}),
        ("identity", {"identity": "a newer topic"}),
    ],
)
def test_checkpoint_of_something_else_is_refused(name: str, options: dict[str, Any]) -> None:
    """The error names both values and what to do; topics are never mixed up in silence."""
    text, _ = encode(Checkpoint(5, 6, identity="a topic"))
    wanted: dict[str, Any] = {"broker": "kafka", "partition": PARTITION, "identity": "a topic"}

    with pytest.raises(CheckpointMismatchError, match=f"was made for {name} .*; delete it, or"):
        decode_checkpoint(text, decode_position=int, **(wanted | options))


@pytest.mark.parametrize("stored, now", [(None, "a topic"), ("a topic", None), (None, None)])
def test_unknown_identity_matches_any(stored: str | None, now: str | None) -> None:
    """Where one side does not know it, nothing can be said."""
    text, _ = encode(Checkpoint(5, 6, identity=stored))

    assert decode(text, identity=now).identity == stored


def test_text_that_is_too_long_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However good it is: reading it would hold everything up."""
    text, _ = encode(Checkpoint(5, 6, ((8, 9),)))
    monkeypatch.setattr(checkpoint_json, "MAX_TEXT", len(text))
    assert decode(text).watermark == 5

    monkeypatch.setattr(checkpoint_json, "MAX_TEXT", len(text) - 1)
    with pytest.raises(CheckpointFormatError, match=f"of {len(text)} characters; at most"):
        decode(text)


def test_budget_beyond_what_is_read_back_is_cut_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written can be read: the reader's own limit holds for the writer."""
    monkeypatch.setattr(checkpoint_json, "MAX_TEXT", 4_000)
    ranges = tuple((10 * i, 10 * i + 3) for i in range(1, 1001))
    text, covered = encode_checkpoint(
        Checkpoint(5, 6, ranges),
        broker="kafka",
        partition=PARTITION,
        encode_position=str,
        max_size=10**9,
    )

    assert decode(text).ranges[-1][1] == covered
