"""Checkpoints as JSON that a person can read, versioned and checksummed.

The text names the broker, stream, partition and identity that it belongs to, so that a
checkpoint can never be used for another one (storm-kafka's PartitionManager checked none of
them, and mixed topics up in silence).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, TypeVar

from consumer_sdk.checkpoints.forms import (
    Fitted,
    check,
    covered,
    fit,
    lowest_in_one,
    match,
    saved_deliveries,
)
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.strict_json import without_duplicates

T = TypeVar("T")

__all__ = ["decode_checkpoint", "encode_checkpoint", "fit_checkpoint"]

VERSION = 1
SMALLEST = len('["",""],')
"""The text of no range, and of no attempt, is shorter."""
LONGER_CHECKSUM = 9
"""Digits that a checksum has more than another, at most."""
MAX_TEXT = 4_000_000
"""Longer text is not read: no store takes so much, and parsing it would block the loop."""
_encode_sorted = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def encode_checkpoint(
    checkpoint: Checkpoint,
    *,
    broker: str,
    partition: Partition,
    encode_position: Callable[[Position], str],
    max_size: int = 1_000_000,
) -> tuple[str, Position | None]:
    """The checkpoint's text, within a size budget.

    Args:
        checkpoint: what to write.
        broker: the adapter's name for what it reads from.
        partition: whose checkpoint it is.
        encode_position: makes a position's text.
        max_size: bytes. What is known of the lowest unseen positions is given up to fit, with what
            was settled below them, so that it may be delivered again. Top ranges and attempts are dropped to fit, so that a restart repeats as
            few deliveries as can be; a checkpoint without either is a few hundred bytes, and is
            never cut.

    Returns:
        the text, and None, or the last position it covers when ranges were dropped: the records
        in them are redelivered.
    """
    return fit_checkpoint(
        checkpoint,
        broker=broker,
        partition=partition,
        encode_position=encode_position,
        max_size=max_size,
    )[:2]


def fit_checkpoint(
    checkpoint: Checkpoint,
    *,
    broker: str,
    partition: Partition,
    encode_position: Callable[[Position], str],
    max_size: int,
) -> Fitted:
    """`encode_checkpoint`, which also says how many attempts were dropped."""
    names, kept = (broker, partition, encode_position), checkpoint
    max_size = min(max_size, MAX_TEXT)
    kept = _with_less_unseen(kept, max_size, lambda some: len(_encode(some, *names)))
    text = _encode(kept, *names)
    if len(text) > max_size and (kept.ranges or kept.attempts):
        least = _encode(replace(kept, ranges=(), attempts={}), *names)
        kept = _cut(kept, encode_position, max_size - len(least) - LONGER_CHECKSUM)
        text = _encode(kept, *names)
    forgotten = len(checkpoint.attempts) - len(kept.attempts)
    return Fitted(text, covered(checkpoint, len(kept.ranges)), forgotten)


def _with_less_unseen(
    checkpoint: Checkpoint, max_size: int, size: Callable[[Checkpoint], int]
) -> Checkpoint:
    """With as many intervals of what was not seen as fit beside the rest without ranges."""
    while (
        len(checkpoint.unseen) > 1 and size(replace(checkpoint, ranges=(), attempts={})) > max_size
    ):
        checkpoint = replace(checkpoint, unseen=lowest_in_one(checkpoint.unseen))
    return checkpoint


def _cut(
    checkpoint: Checkpoint, encode_position: Callable[[Position], str], room: int
) -> Checkpoint:
    """With the lowest ranges and attempts that are worth the most; looks at what might fit."""
    most = max(room, 0) // SMALLEST + 1
    attempts, lowest = sorted(checkpoint.attempts.items())[:most], checkpoint.ranges[:most]
    tried = [failures for _, (failures, _) in attempts]

    def text_size(position: Position) -> int:
        return len(_quoted(encode_position(position)))

    of_ranges = (text_size(first) + text_size(last) + len("[,],") for first, last in lowest)
    of_attempts = (
        text_size(position) + len(f"{failures!r}{due!r}:[,],")
        for position, (failures, due) in attempts
    )
    ranges, tries = fit(
        list(accumulate(of_ranges, initial=0)),
        saved_deliveries(lowest),
        list(accumulate(of_attempts, initial=0)),
        list(accumulate(tried, initial=0)),
        room,
    )
    return replace(checkpoint, ranges=checkpoint.ranges[:ranges], attempts=dict(attempts[:tries]))


def _encode(
    checkpoint: Checkpoint,
    broker: str,
    partition: Partition,
    encode_position: Callable[[Position], str],
) -> str:
    """Fields in the order of their names, as `_checksum` has them; some only where there is one.

    Put together by hand: each flush pays for it, and an encoder takes three times as long.
    """

    def text(position: Position) -> str:
        return _quoted(encode_position(position))

    def optional(position: Position | None) -> str:
        return "null" if position is None else text(position)

    application, identity, written = checkpoint.application, checkpoint.identity, checkpoint.written
    tried = checkpoint.attempts.items()
    attempts = {encode_position(p): [failures, due] for p, (failures, due) in tried}
    ranges = ",".join([f"[{text(first)},{text(last)}]" for first, last in checkpoint.ranges])
    unseen = ",".join([f"[{optional(lower)},{text(upper)}]" for lower, upper in checkpoint.unseen])
    body = (
        ("" if application is None else f'"application":{_quoted(application)},')
        + f'"attempts":{_encode_sorted(attempts) if attempts else "{}"},"broker":{_quoted(broker)},'
        f'"ended":{"true" if checkpoint.ended else "false"},'
        f'"identity":{"null" if identity is None else _quoted(identity)},'
        f'"partition":{_quoted(partition.id)},"ranges":[{ranges}],'
        f'"resume":{optional(checkpoint.resume)},"stream":{_quoted(partition.stream)},'
        + (f'"unseen":[{unseen}],' if unseen else "")
        + f'"version":{VERSION},"watermark":{optional(checkpoint.watermark)}'
        + ("" if written is None else f',"written":{_encode_sorted(written)}')
    )
    return f'{{{body},"crc32":{zlib.crc32(f"{{{body}}}".encode())}}}'


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(_encode_sorted(body).encode())


def decode_checkpoint(
    text: str,
    *,
    broker: str,
    partition: Partition,
    identity: str | None,
    decode_position: Callable[[str], Position],
) -> Checkpoint:
    """Reads `encode_checkpoint` back.

    Args:
        text: what the store has.
        broker: the adapter's name for what it reads from.
        partition: whose checkpoint is wanted.
        identity: the stream's identity now; None where it is unknown.
        decode_position: reads a position's text; raises ValueError for any other.

    Raises:
        CheckpointFormatError: ``text`` is not a checkpoint of this version.
        CheckpointMismatchError: it belongs to another broker, stream, partition or
            incarnation of the stream.
    """
    body = _parse(text)
    match("broker", body.get("broker"), broker)
    match("stream", body.get("stream"), partition.stream)
    match("partition", body.get("partition"), partition.id)
    if identity is not None and body.get("identity") is not None:
        match("identity", body["identity"], identity)
    try:
        return check(_build(body, decode_position))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise CheckpointFormatError(f"a checkpoint with a malformed field: {error!r}") from error


def _parse(text: str) -> dict[str, Any]:
    if len(text) > MAX_TEXT:
        raise CheckpointFormatError(f"a checkpoint of {len(text)} characters; at most {MAX_TEXT}")
    try:
        body = json.loads(text, object_pairs_hook=without_duplicates)
        checksum = body.pop("crc32", None) if isinstance(body, dict) else None
        is_intact = checksum == _checksum(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointFormatError(f"not a checkpoint's JSON: {text[:80]!r}: {error}") from error
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise CheckpointFormatError(f"not a checkpoint of version {VERSION}: {text[:80]!r}")
    if not is_intact:
        raise CheckpointFormatError(f"a checkpoint with a wrong checksum: {text[:80]!r}")
    return body


def _build(body: dict[str, Any], decode_position: Callable[[str], Position]) -> Checkpoint:
    def position(value: object) -> Position:
        return decode_position(_typed(value, str))

    def optional(value: object) -> Position | None:
        return None if value is None else position(value)

    pairs = (_typed(pair, list) for pair in _typed(body["ranges"], list))
    intervals = (_typed(pair, list) for pair in _typed(body.get("unseen", []), list))
    tried = _typed(body["attempts"], dict)
    attempts = {
        position(p): (_typed(failures, int), _time(due)) for p, (failures, due) in tried.items()
    }
    if len(attempts) != len(tried):
        raise ValueError("attempts of one position that is there twice")
    return Checkpoint(
        watermark=optional(body["watermark"]),
        resume=optional(body["resume"]),
        ranges=tuple((position(first), position(last)) for first, last in pairs),
        attempts=attempts,
        ended=_typed(body["ended"], bool),
        identity=None if body["identity"] is None else _typed(body["identity"], str),
        application=_typed(body["application"], str) if "application" in body else None,
        written=_time(body["written"]) if "written" in body else None,
        unseen=tuple((optional(lower), position(upper)) for lower, upper in intervals),
    )


def _typed(value: object, kind: type[T]) -> T:
    """``value``, whose type is ``kind`` exactly: JSON's true is not the number 1."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.80} is not of type {kind.__name__}")
    return value


def _time(value: object) -> float:
    return float(value if type(value) is int else _typed(value, float))
