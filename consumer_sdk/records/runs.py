"""What a fetch brings, and what a tracker makes of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.records.messages import Message
from consumer_sdk.records.partitions import Assignment, Position

__all__ = ["Due", "Run", "Tracked", "Verdict", "VerdictKind"]


@dataclass(slots=True)
class Run:
    """Consecutive records of one partition, as fetched.

    Attributes:
        assignment: the grant that they belong to.
        messages: in order; may be empty.
        next_position: where the next fetch starts, when the broker says so. It may move
            without any record (transaction markers, filtered records).
        ended: the partition has no further records, ever.
        fault: an error of this partition alone; the adapter has paused it. Such a run carries no
            messages: those before the fault come in a run of their own.
        size: bytes of the messages.
        ascends: the adapter knows that positions ascend. Where they may not, trackers look.
    """

    assignment: Assignment
    messages: list[Message] = field(default_factory=list)
    next_position: Position | None = None
    ended: bool = False
    fault: Exception | None = None
    size: int = 0
    ascends: bool = False


class VerdictKind(enum.Enum):
    """What becomes of a delivery that failed."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A tracker's decision on a nack: retry at ``due`` (monotonic seconds), or not at all."""

    kind: VerdictKind
    due: float = 0.0


@dataclass(slots=True)
class Tracked:
    """What tracking a run found; everything but the indices lists exceptions only.

    Indices are minted from ``first`` in order, one for each message that was not dropped.

    Attributes:
        first: the first index minted.
        count: how many were minted.
        dropped: offsets *into the run* of messages at or below what was seen or settled before;
            they have no index and are not delivered.
        settled: indices settled before a restart; not delivered.
        known: offsets into the run of messages that are in flight already; not delivered.
        held: indices of restored retries that are not due yet; they come through ``due``.
        tries: index → attempt number, where that is not 1.
        exhausted: indices at their retry limit: straight to the dead letters.
    """

    first: int
    count: int
    dropped: Sequence[int] = ()
    settled: Sequence[int] = ()
    known: Sequence[int] = ()
    held: Sequence[int] = ()
    tries: Mapping[int, int] = field(default_factory=dict)
    exhausted: Sequence[int] = ()

    @property
    def plain(self) -> bool:
        """Every message is new and to be delivered for the first time."""
        return not (
            self.dropped or self.settled or self.known or self.held or self.tries or self.exhausted
        )


@dataclass(frozen=True, slots=True)
class Due:
    """What time brought: redeliveries and expired deliveries.

    Attributes:
        ready: (index, attempt, item) of retries that are due; item is what ``nack`` was given.
        expired: (index, verdict, item) of deliveries whose ack timeout passed.
    """

    ready: Sequence[tuple[int, int, Any]] = ()
    expired: Sequence[tuple[int, Verdict, Any]] = ()
