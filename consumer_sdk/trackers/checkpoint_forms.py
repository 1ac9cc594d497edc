"""What the text and the binary form of a checkpoint share: what is valid, and whose it is."""

from __future__ import annotations

import math

from consumer_sdk.errors import CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Position

__all__ = ["check", "covered", "match"]

MOST_FAILURES = 2**31 - 1
"""More failed deliveries of one record than this are no count that a tracker has made."""


def check(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, if a tracker can be restored from it.

    Raises:
        ValueError: it contradicts itself.
    """
    last = checkpoint.watermark
    for first, end in checkpoint.ranges:
        if end < first or (last is not None and first <= last):
            raise ValueError(f"ranges out of order at {first!r}")
        last = end
    if checkpoint.ranges and checkpoint.start is None:
        raise ValueError("ranges, but no position to read from: the holes between would be lost")
    for failures, due in checkpoint.attempts.values():
        if not 0 <= failures <= MOST_FAILURES:
            raise ValueError(f"{failures!r:.80} is not a count of failed deliveries")
        if not math.isfinite(due):
            raise ValueError(f"{due!r} is not a time")
    return checkpoint


def covered(checkpoint: Checkpoint, kept: int) -> Position | None:
    """The last position covered when only the ``kept`` lowest ranges fit; None if all do."""
    if kept == len(checkpoint.ranges):
        return None
    if kept:
        return checkpoint.ranges[kept - 1][1]
    # Never None, which would say that everything is covered.
    return checkpoint.resume if checkpoint.watermark is None else checkpoint.watermark


def match(name: str, stored: object, wanted: str) -> None:
    """Sees that a checkpoint is the wanted one's.

    Raises:
        CheckpointMismatchError: ``stored`` is not ``wanted``.
    """
    if stored != wanted:
        raise CheckpointMismatchError(
            f"the checkpoint was made for {name} {stored!r:.300}, not {wanted!r}; delete it, "
            f"or use another group or store root"
        )
