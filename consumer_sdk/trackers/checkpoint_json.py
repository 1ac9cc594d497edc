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
from typing import Any, TypeVar

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.records.strict_json import without_duplicates
from consumer_sdk.trackers.checkpoint_forms import check, covered, match

T = TypeVar("T")

__all__ = ["decode_checkpoint", "encode_checkpoint"]

VERSION = 1
MAX_TEXT = 4_000_000
"""Longer text is not read: no store takes so much, and parsing it would block the loop."""


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
        max_size: bytes. Top ranges, with the attempts above them, are dropped to fit, then top
            attempts; a checkpoint without either is a few hundred bytes, and is never cut.

    Returns:
        the text, and None, or the last position it covers when ranges were dropped: the records
        in them are redelivered.
    """
    kept = checkpoint
    text = _encode(kept, broker, partition, encode_position)
    max_size = min(max_size, MAX_TEXT)
    while len(text) > max_size and (kept.ranges or kept.attempts):
        kept = _smaller(kept, max_size / len(text))
        text = _encode(kept, broker, partition, encode_position)
    return text, covered(checkpoint, len(kept.ranges))


def _smaller(checkpoint: Checkpoint, share: float) -> Checkpoint:
    """The lowest ``share`` of the ranges, and no attempts above; without any, of the attempts."""
    ranges, attempts = checkpoint.ranges, sorted(checkpoint.attempts.items())
    if ranges:
        keep = int(len(ranges) * share)
        attempts = [entry for entry in attempts if entry[0] < ranges[keep][0]]
        ranges = ranges[:keep]
    else:
        attempts = attempts[: int(len(attempts) * share)]
    return replace(checkpoint, ranges=ranges, attempts=dict(attempts))


def _encode(
    checkpoint: Checkpoint,
    broker: str,
    partition: Partition,
    encode_position: Callable[[Position], str],
) -> str:
    def optional(position: Position | None) -> str | None:
        return None if position is None else encode_position(position)

    body: dict[str, Any] = {
        "version": VERSION,
        "broker": broker,
        "stream": partition.stream,
        "partition": partition.id,
        "identity": checkpoint.identity,
        **_application(checkpoint),
        "watermark": optional(checkpoint.watermark),
        "resume": optional(checkpoint.resume),
        "ranges": [[encode_position(a), encode_position(b)] for a, b in checkpoint.ranges],
        "attempts": {
            encode_position(p): [failures, due]
            for p, (failures, due) in checkpoint.attempts.items()
        },
        "ended": checkpoint.ended,
    }
    body["crc32"] = _checksum(body)
    return json.dumps(body, separators=(",", ":"))


def _application(checkpoint: Checkpoint) -> dict[str, str]:
    """Left out where there is none, as all texts did before there were any."""
    return {} if checkpoint.application is None else {"application": checkpoint.application}


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, separators=(",", ":"), sort_keys=True).encode())


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
    )


def _typed(value: object, kind: type[T]) -> T:
    """``value``, whose type is ``kind`` exactly: JSON's true is not the number 1."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.80} is not of type {kind.__name__}")
    return value


def _time(value: object) -> float:
    return float(value if type(value) is int else _typed(value, float))
