"""Checkpoints as JSON: what is written is read back, and fits its budget."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints import json as checkpoint_json
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint
from tests.trackers.codec import PARTITION, checkpoints, decode, encode, position_of, text_of

NAMES = st.text(st.characters(), max_size=20)
"""Also with halves of surrogate pairs, which no UTF-8 has."""


def encoded_plainly(checkpoint: Checkpoint, broker: str, partition: Partition) -> str:
    """The text as an encoder of JSON makes it, of all fields in a dict."""
    optional = {"application": checkpoint.application, "written": checkpoint.written}
    unseen = [[low if low is None else text_of(low), text_of(up)] for low, up in checkpoint.unseen]
    body = {
        "version": 1,
        "broker": broker,
        "stream": partition.stream,
        "partition": partition.id,
        "identity": checkpoint.identity,
        "watermark": None if checkpoint.watermark is None else text_of(checkpoint.watermark),
        "resume": None if checkpoint.resume is None else text_of(checkpoint.resume),
        "ranges": [[text_of(first), text_of(last)] for first, last in checkpoint.ranges],
        "attempts": {text_of(p): tried for p, tried in checkpoint.attempts.items()},
        "ended": checkpoint.ended,
        **({"unseen": unseen} if unseen else {}),
        **{name: value for name, value in optional.items() if value is not None},
    }
    signed = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f'{signed[:-1]},"crc32":{zlib.crc32(signed.encode())}}}'


@given(checkpoints())
def test_checkpoint_is_read_back_as_it_was(checkpoint: Checkpoint) -> None:
    """Whole numbers and tuples, any identity text, exact times."""
    text, covered = encode(checkpoint)

    assert covered is None
    assert text.isascii()
    assert decode(text, read=position_of) == checkpoint


@given(checkpoints(), st.tuples(NAMES, NAMES, NAMES), st.none() | NAMES, st.none() | st.floats())
def test_text_is_the_one_that_an_encoder_makes(
    checkpoint: Checkpoint, names: tuple[str, str, str], name: str | None, time: float | None
) -> None:
    """To the character, whatever is in the names, and however large a time is."""
    positions = [*checkpoint.attempts, *(last for _, last in checkpoint.ranges)]
    checkpoint = replace(
        checkpoint,
        identity=name,
        application=name,
        written=time,
        attempts={p: (count, time or due) for p, (count, due) in checkpoint.attempts.items()},
        unseen=tuple(zip([None, *positions], positions, strict=False)),
    )
    broker, partition = names[0], Partition(*names[1:])
    text, _ = encode_checkpoint(
        checkpoint, broker=broker, partition=partition, encode_position=text_of
    )

    assert text == encoded_plainly(checkpoint, broker, partition)


@pytest.mark.parametrize("text", [None, 5, b"6"])
@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(5),
        Checkpoint(resume=5),
        Checkpoint(ranges=((8, 9),)),
        Checkpoint(unseen=((None, 9),)),
    ],
)
def test_position_without_a_text_is_not_written(checkpoint: Checkpoint, text: object) -> None:
    """An adapter's mistake shows with the first flush, and not when a restart cannot read it."""
    made: Any = text
    with pytest.raises(TypeError, match="must be a string"):
        encode_checkpoint(
            checkpoint, broker="kafka", partition=PARTITION, encode_position=lambda _: made
        )


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
