"""The machine of a grant, the same for each broker: offered, started, open, drained, over. Pure.

A *grant* is one epoch of a partition: what the broker, the group or a lease gave to this process, until
it takes it away. An adapter's `BaseGrant` knows how its records are gated and fetched; the
`AssignmentBook` knows what may be done with it.

===========  ============================  ============  ================================================
state        event                         next          what the adapter does
===========  ============================  ============  ================================================
(none)       `AssignmentBook.offer`        OFFERED       has the owner asked (`GrantRounds`); an older
                                                         grant of the partition is over
OFFERED      the owner gives a start       STARTING      seeks, where that takes a request, then opens
OFFERED      the owner gives none          CLOSED        gives the partition back, or offers it anew
OFFERED      the owner fails, or its       OFFERED       asks again
             question is ended
STARTING     `AssignmentBook.open`         OPEN          fetches
(any held)   `AssignmentBook.drain`        DRAINING      fetches nothing; commits are still valid
(any)        `AssignmentBook.close`        CLOSED        refuses commits, without asking the broker
(none)       `AssignmentBook.offer`, after  CLOSED       gives the partition back
             `AssignmentBook.end_offers`
===========  ============================  ============  ================================================

Races:

- *Lost while the owner thinks.* (1) The owner is asked; (2) the grant is lost, and the owner is told, who
  does not hold it yet; (3) the owner answers with a start, and holds it from now on. So the
  owner is told of the loss once more: `Answer.late`.
- *Drained while the owner thinks.* The grant is DRAINING before the question is ended. If the answer was
  faster it is not started: the revoke that follows ends what the owner holds.
- *Over while it is sought.* `AssignmentBook.open` says False: the position that was found is of no use.
- *Offered while the adapter closes.* (1) The adapter revokes all that it holds; (2) a lease or an assignment
  arrives that was on its way; (3) it is offered, and nobody revokes it any more. So an adapter that closes
  first calls `AssignmentBook.end_offers`, and later offers are refused.
- *Replaced.* Every look-up is by the assignment itself, not by its partition, so that a late call for an
  epoch that is over finds nothing.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from consumer_sdk.records import Assignment, Start, StartPoint

__all__ = ["Answer", "AssignmentBook", "BaseGrant", "GrantState", "next_epoch"]

_epochs = itertools.count(1)


def next_epoch() -> int:
    """A number above those of all grants before, of whichever adapter of this process."""
    return next(_epochs)


class GrantState(enum.Enum):
    """How far a grant has come."""

    OFFERED = "offered"
    """The owner has not said yet where to start. Gated."""
    STARTING = "starting"
    """The owner has accepted it; its position is being looked up, or sought. Gated."""
    OPEN = "open"
    """Records are fetched."""
    DRAINING = "draining"
    """Being given up: nothing is fetched, commits are still valid."""
    CLOSED = "closed"
    """Over: a commit is refused without asking the broker."""


@dataclass(slots=True, eq=False)
class BaseGrant:
    """One epoch of a partition; adapters add what they fetch it by.

    Attributes:
        assignment: what the owner knows it by.
        state: see `GrantState`; the book moves it.
        start: the owner's answer.
        is_paused: by the owner.
    """

    assignment: Assignment
    state: GrantState = field(default=GrantState.OFFERED, init=False)
    start: Start | None = field(default=None, init=False)
    is_paused: bool = field(default=False, init=False)

    @property
    def key(self) -> Hashable:
        """What the broker's side knows the partition by."""
        return self.assignment.partition

    @property
    def is_fetched(self) -> bool:
        """Its records may be handed out."""
        is_read = self.state is GrantState.OPEN and self.start is not StartPoint.ENDED
        return is_read and not self.is_paused

    @property
    def is_held(self) -> bool:
        """Neither over nor about to be."""
        return self.state not in (GrantState.DRAINING, GrantState.CLOSED)

    @property
    def is_closed(self) -> bool:
        """It is over."""
        return self.state is GrantState.CLOSED

    def close(self) -> None:
        """It is over, and keeps nothing; called once, by the book."""
        self.state = GrantState.CLOSED


G = TypeVar("G", bound=BaseGrant)


class Answer(NamedTuple, Generic[G]):
    """What the owner's answer has led to.

    Attributes:
        started: to be opened at their ``start``.
        declined: closed; the adapter gives them back, or offers them anew.
        late: they were over when the owner accepted them: it is to be told that they are lost.
    """

    started: list[G]
    declined: list[G]
    late: list[G]


class AssignmentBook(Generic[G]):
    """The grants of one adapter that are not over, each partition's newest.

    Attributes:
        is_closing: offers are refused, since the adapter closes.
    """

    def __init__(self) -> None:
        self.is_closing = False
        self._by_key: dict[Hashable, G] = {}
        self._by_assignment: dict[Assignment, G] = {}

    # -- events -------------------------------------------------------------------------

    def offer(self, grant: G) -> bool:
        """Holds a grant, and closes an older one of the same partition. False if the offer is refused."""
        if self.is_closing:
            grant.close()
            return False
        older = self._by_key.get(grant.key)
        if older is not None:
            self.close([older])
        self._by_key[grant.key] = grant
        self._by_assignment[grant.assignment] = grant
        return True

    def end_offers(self) -> None:
        """The adapter closes: what is held stays until it is revoked, and nothing is added."""
        self.is_closing = True

    def answer(self, asked: Iterable[G], starts: Mapping[Assignment, Start]) -> Answer[G]:
        """The owner has said where to start."""
        answer: Answer[G] = Answer([], [], [])
        for grant in asked:
            start = starts.get(grant.assignment)
            if grant.state is GrantState.OFFERED and start is not None:
                grant.start, grant.state = start, GrantState.STARTING
                answer.started.append(grant)
            elif grant.state is GrantState.OFFERED:
                answer.declined.append(grant)
            elif grant.is_closed and start is not None:
                answer.late.append(grant)
        self.close(answer.declined)
        return answer

    def open(self, grant: G) -> bool:
        """Its start is found: it is fetched from now on; False if it is none that starts any more."""
        if grant.state is not GrantState.STARTING:
            return False
        grant.state = GrantState.OPEN
        return True

    def drain(self, grants: Iterable[G]) -> list[G]:
        """Nothing of them is fetched any more; returns those of which something was."""
        held = [grant for grant in grants if grant.is_held]
        for grant in held:
            grant.state = GrantState.DRAINING
        return held

    def close(self, grants: Iterable[G]) -> list[G]:
        """Ends grants; returns those that were not over before."""
        ended = []
        for grant in grants:
            if not grant.is_closed:
                del self._by_assignment[grant.assignment]
                del self._by_key[grant.key]
                grant.close()
                ended.append(grant)
        return ended

    # -- looking ------------------------------------------------------------------------

    def at(self, key: Hashable) -> G | None:
        """What is held of a partition."""
        return self._by_key.get(key)

    def of(self, assignment: Assignment) -> G | None:
        """What is held under exactly this assignment."""
        return self._by_assignment.get(assignment)

    def of_all(self, assignments: Iterable[Assignment]) -> list[G]:
        """What is held under these assignments."""
        return [grant for each in assignments if (grant := self.of(each)) is not None]

    def within(self, *states: GrantState) -> Sequence[G]:
        """Those in any of these states."""
        return [grant for grant in self if grant.state in states]

    def __iter__(self) -> Iterator[G]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)
