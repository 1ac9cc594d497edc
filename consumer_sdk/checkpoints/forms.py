"""What the text and the binary form of a checkpoint share: what is valid, and whose it is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from consumer_sdk.errors import CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.ranges import Interval

__all__ = ["Fitted", "check", "covered", "fit", "lowest_in_one", "match", "saved_deliveries"]

SHARE = 4
"""Of a checkpoint's room, one part in so many is for attempts."""
MOST_FAILURES = 2**31 - 1
"""More failed deliveries of one record than this are no count that a tracker has made."""


class Fitted(NamedTuple):
    """What was written of a checkpoint within a size budget.

    Attributes:
        data: the text, or the bytes.
        covered: the last position that the ranges cover if top ones were dropped, None for all: the
            records above are redelivered.
        forgotten: how many failed records' attempts were dropped; they count anew after a restart.
    """

    data: Any
    covered: Position | None
    forgotten: int


def fit(
    range_sizes: Sequence[int],
    range_worths: Sequence[int],
    attempt_sizes: Sequence[int],
    attempt_worths: Sequence[int],
    room: int,
) -> tuple[int, int]:
    """How many of the lowest ranges and attempts to keep, so that the fewest deliveries repeat.

    A range that is dropped repeats its records, and an attempt as many deliveries as it counts. As
    many attempts as fit a `SHARE` of the room stay in any case: a record that kills its process is
    given up only if its count survives that.

    Args:
        range_sizes: at n, what the n lowest ranges take; from 0 on, as with the others.
        range_worths: at n, `saved_deliveries` by them.
        room: what all may take.
    """
    highest, room = list(accumulate(range_sizes, max)), max(room, 0)
    least, most = (bisect_right(attempt_sizes, part) for part in (room // SHARE, room))
    best = -1, 0, 0
    for tries in range(least - 1, most):
        kept = bisect_right(highest, room - attempt_sizes[tries]) - 1
        best = max(best, (range_worths[kept] + attempt_worths[tries], kept, tries))
    return best[1:]


def saved_deliveries(ranges: Iterable[tuple[Position, Position]]) -> list[int]:
    """Records in the n lowest ranges, at n; of positions that are no whole numbers, at least."""
    return list(accumulate((_records(first, last) for first, last in ranges), initial=0))


def _records(first: Position, last: Position) -> int:
    return int(last - first + 1 if isinstance(first, int) else 1 + (first != last))


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
    _check_unseen(checkpoint)
    for failures, due in checkpoint.attempts.values():
        if not 0 <= failures <= MOST_FAILURES:
            raise ValueError(f"{failures!r:.80} is not a count of failed deliveries")
        if not math.isfinite(due):
            raise ValueError(f"{due!r} is not a time")
    if checkpoint.written is not None and not math.isfinite(checkpoint.written):
        raise ValueError(f"{checkpoint.written!r} is not a time")
    return checkpoint


def _check_unseen(checkpoint: Checkpoint) -> None:
    last = None
    for at, (lower, upper) in enumerate(checkpoint.unseen):
        is_above = at == 0 if lower is None else last is None or lower >= last
        if not is_above or (lower is not None and upper <= lower):
            raise ValueError(f"unseen positions out of order at {upper!r}")
        last = upper


def lowest_in_one(unseen: Sequence[Interval]) -> tuple[Interval, ...]:
    """The lower half of some intervals, and all that lies below them, as one that was not seen."""
    half = len(unseen) // 2
    return ((None, unseen[half][1]), *unseen[half + 1 :])


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
