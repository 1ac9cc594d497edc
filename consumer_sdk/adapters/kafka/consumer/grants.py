"""A held partition, with the facts of its assignment."""

from __future__ import annotations

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import BaseGrant, GrantState, next_epoch
from consumer_sdk.adapters.doubts import Doubts
from consumer_sdk.adapters.kafka.client.lookups import GroupOffset
from consumer_sdk.adapters.kafka.fetch.cursor import NO_POSITION, Cursor
from consumer_sdk.records import Assignment, Checkpoint, Partition

__all__ = ["Grant"]


class Grant(BaseGrant):
    """One epoch of a partition.

    Attributes:
        tp: what the client knows it by.
        tenure: the same for all grants from when the partition comes until it goes.
        cursor: where it stands, and what was fetched of it. Its own: what comes for another grant is not ours.
        topic_id: 16 bytes, or None where the broker has none.
        has_fault: a fault was reported: nothing is fetched until it is granted again.
        doubts: what could not be read, and how often.
        is_salvaged: what lies there is fetched for the last time, by itself, and taken apart.
        acquitted: a position that could be read when it was taken apart, or -1.
        behind: the offset behind what cannot be read, once that was reported.
        reported: the position after the last run.
        stands: what the group had committed when it was asked last.
        has_lost_past: the grant before it was told that the log has another past. So its epoch is not asked with again.
        past_end: where that one ends, until it has begun; -1 where that is not known.
        committed: the highest position that a commit was sent for.
        number, checkpoint, is_copy: of the last flush of that position: one flush gives all of what is
            committed, so that no position goes with the ranges of another.
        attempt: offers in a row that were declined.
    """

    __slots__ = (
        "acquitted",
        "attempt",
        "behind",
        "checkpoint",
        "committed",
        "cursor",
        "doubts",
        "has_fault",
        "has_lost_past",
        "is_copy",
        "is_salvaged",
        "number",
        "past_end",
        "reported",
        "stands",
        "tenure",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        tenure: object = None,
        *,
        discovered: bool = False,
        attempt: int = 0,
    ) -> None:
        # No fence for stores: a generation starts at 1 again when an empty group has expired,
        # and would then be refused for ever. The last one to claim is the owner, since the
        # claim follows the assignment.
        partition = Partition(tp.topic, str(tp.partition))
        super().__init__(Assignment(partition, next_epoch(), fence=None, discovered=discovered))
        self.tp = tp
        self.tenure = tenure
        self.cursor = Cursor(tp)
        self.topic_id: bytes | None = None
        self.has_fault = False
        self.doubts = Doubts()
        self.acquitted = -1
        self.is_salvaged = False
        self.behind: int | None = None
        self.reported = -1
        self.stands: GroupOffset | None = None
        self.has_lost_past = False
        self.past_end = NO_POSITION
        self.committed = -1
        self.number = 0
        self.checkpoint = Checkpoint()
        self.is_copy = False
        self.attempt = attempt

    @property
    def key(self) -> TopicPartition:
        return self.tp

    @property
    def is_fetched(self) -> bool:
        is_held_back = self.is_paused or self.has_fault or self.is_salvaged
        return self.state is GrantState.OPEN and not is_held_back

    def pause(self) -> None:
        """Stops fetching; what is fetched already is kept."""
        self.is_paused = True
        self.cursor.pause()

    def resume(self) -> None:
        """Undoes `pause`, and goes on behind what cannot be read; what is gated stays gated."""
        self.is_paused = False
        if self.behind is not None and self.state is GrantState.OPEN:
            self.cursor.consumed_to(self.behind)
            self.behind, self.has_fault = None, False
        if self.is_fetched:
            self.cursor.resume()

    def seek(self, offset: int) -> None:
        """Begins there. What the group has committed there tells of which past it is (KIP-320).

        1. Records are read, and committed; 2. the leader dies, and one without them takes over; 3. it writes others in
        their places. Without the epoch these would be passed over in silence.

        Once that was told, ``out_of_range`` has decided where to go on, and the same answer would come for ever.
        """
        self.cursor.seek(offset)
        self.past_end = NO_POSITION
        if self.has_lost_past or self.stands is None or self.stands.offset != offset:
            return
        self.cursor.last_epoch = self.stands.epoch

    def within_past(self, end: int | None) -> int | None:
        """The end of the log, as far as the log is the one that the group has read.

        1. A log is read up to 100, and truncated to 50; 2. others write up to 200. The group stands at 100, which is stored:
        only with 50 as its end ``out_of_range`` decides where to go on.
        """
        return end if end is None or self.past_end < 0 else min(end, self.past_end)

    def close(self) -> None:
        """It is over, and nothing is fetched for it."""
        super().close()
        self.cursor.close()

    def again(self) -> Grant:
        """The same partition in a new epoch, offered anew."""
        made = Grant(
            self.tp,
            self.tenure,
            discovered=self.assignment.discovered,
            attempt=self.attempt + 1,
        )
        made.has_lost_past, made.past_end = self.cursor.has_lost_past, self.cursor.past_end
        return made
