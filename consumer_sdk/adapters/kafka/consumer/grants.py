"""The partitions held, each with what was true when it was assigned."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.doubts import Doubts
from consumer_sdk.records import Assignment, Checkpoint, Partition, Start

__all__ = ["Grant", "GrantState", "Grants"]

_epochs = itertools.count(1)


class GrantState(enum.Enum):
    """How far a grant has come."""

    OFFERED = "offered"
    """Assigned by the group; its owner has not said yet where to start. Gated."""
    STARTING = "starting"
    """The owner has accepted it; its position is being looked up. Gated."""
    OPEN = "open"
    """Records are fetched."""
    DRAINING = "draining"
    """Being revoked: nothing is fetched, commits are still valid."""
    CLOSED = "closed"
    """Over: a commit is refused here, without asking the broker."""


class Grant:
    """One epoch of a partition.

    Attributes:
        assignment: what the owner knows it by.
        tp: what the client knows it by.
        generation, member_id: the group's at the time; commits carry *these*.
        client_assignment: the client's assignment; records fetched under another are not ours.
        cursor: the client's position, pause and high watermark of the partition.
        topic_id: 16 bytes, or None where the broker has none.
        start: the owner's answer.
        is_paused: by the owner.
        has_fault: a fault was reported: nothing is fetched until it is granted again.
        doubts: what could not be read, and how often.
        is_salvaged: what lies there is fetched for the last time, by itself, and taken apart.
        acquitted: a position that could be read when it was taken apart, or -1.
        behind: the offset behind what cannot be read, once that was reported.
        reported: the position after the last run.
        committed: the highest position that a commit was sent for.
        number, checkpoint, is_copy: of the last flush of that position: one flush gives all of what is
            committed, so that no position goes with the ranges of another.
        attempt: offers in a row that were declined.
    """

    __slots__ = (
        "acquitted",
        "assignment",
        "attempt",
        "behind",
        "checkpoint",
        "client_assignment",
        "committed",
        "cursor",
        "doubts",
        "generation",
        "has_fault",
        "is_copy",
        "is_paused",
        "is_salvaged",
        "member_id",
        "number",
        "reported",
        "start",
        "state",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        client_assignment: Any,
        *,
        generation: int = -1,
        member_id: str = "",
        discovered: bool = False,
        attempt: int = 0,
    ) -> None:
        self.tp = tp
        self.client_assignment = client_assignment
        self.cursor = client_assignment.state_value(tp)
        self.generation = generation
        self.member_id = member_id
        self.assignment = Assignment(
            Partition(tp.topic, str(tp.partition)),
            next(_epochs),
            # No fence for stores: a generation starts at 1 again when an empty group has expired,
            # and would then be refused for ever. The last one to claim is the owner, since the
            # claim follows the assignment.
            fence=None,
            discovered=discovered,
        )
        self.state = GrantState.OFFERED
        self.topic_id: bytes | None = None
        self.start: Start | None = None
        self.is_paused = False
        self.has_fault = False
        self.doubts = Doubts()
        self.acquitted = -1
        self.is_salvaged = False
        self.behind: int | None = None
        self.reported = -1
        self.committed = -1
        self.number = 0
        self.checkpoint = Checkpoint()
        self.is_copy = False
        self.attempt = attempt

    @property
    def is_fetched(self) -> bool:
        """Its records may be handed out."""
        is_held_back = self.is_paused or self.has_fault or self.is_salvaged
        return self.state is GrantState.OPEN and not is_held_back

    @property
    def is_held(self) -> bool:
        """Neither over nor about to be."""
        return self.state not in (GrantState.DRAINING, GrantState.CLOSED)

    @property
    def is_closed(self) -> bool:
        """It is over."""
        return self.state is GrantState.CLOSED

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

    def move_to(self, client_assignment: Any) -> None:
        """The client has a new assignment with the same partition in it: carry on there."""
        old, self.cursor = self.cursor, client_assignment.state_value(self.tp)
        self.client_assignment = client_assignment
        self.cursor.seek(old.position)
        if old.paused:
            self.cursor.pause()

    def again(self) -> Grant:
        """The same partition in a new epoch, offered anew."""
        return Grant(
            self.tp,
            self.client_assignment,
            generation=self.generation,
            member_id=self.member_id,
            discovered=self.assignment.discovered,
            attempt=self.attempt + 1,
        )


class Grants:
    """All current grants, by partition and by assignment."""

    def __init__(self) -> None:
        self._by_tp: dict[TopicPartition, Grant] = {}
        self._by_assignment: dict[Assignment, Grant] = {}

    def add(self, grant: Grant) -> None:
        """Holds a grant; an older one of the same partition is closed."""
        older = self._by_tp.get(grant.tp)
        if older is not None:
            self.close(older)
        self._by_tp[grant.tp] = grant
        self._by_assignment[grant.assignment] = grant

    def close(self, grant: Grant) -> None:
        """Ends a grant."""
        grant.state = GrantState.CLOSED
        self._by_assignment.pop(grant.assignment, None)
        if self._by_tp.get(grant.tp) is grant:
            del self._by_tp[grant.tp]

    def at(self, tp: TopicPartition) -> Grant | None:
        """The grant of a partition."""
        return self._by_tp.get(tp)

    def of(self, assignment: Assignment) -> Grant | None:
        """The grant of an assignment, unless it is over."""
        return self._by_assignment.get(assignment)

    def of_all(self, assignments: Iterable[Assignment]) -> list[Grant]:
        """The grants of those assignments that are not over."""
        found = (self._by_assignment.get(assignment) for assignment in assignments)
        return [grant for grant in found if grant is not None]

    def within(self, *states: GrantState) -> list[Grant]:
        """The grants in any of these states."""
        return [grant for grant in self if grant.state in states]

    def __iter__(self) -> Iterator[Grant]:
        return iter(list(self._by_tp.values()))

    def __len__(self) -> int:
        return len(self._by_tp)
