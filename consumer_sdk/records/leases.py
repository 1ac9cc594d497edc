"""Leases: who may read which partition of a stream, where the broker does not say.

A partition is named by its id here: the leases of a group are kept for each stream on its own.
A *member* is one consumer that shares the partitions of the stream with the group's others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Lease", "LeaseView", "Moves", "is_readable"]


@dataclass(frozen=True, slots=True)
class Lease:
    """What is stored of one partition.

    Attributes:
        parents: the partitions that have to end before this one is read.
        owner: the member that took it last and has not released it; it may be dead by now.
        fence: that of the last take, above every earlier one of the group and stream; 0 before
            the first.
        wanted_by: the member that waits until the owner has handed it over.
        ended: it was read to its end, and every record of it is settled.
    """

    parents: tuple[str, ...] = ()
    owner: str | None = None
    fence: int = 0
    wanted_by: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The leases at one moment, as one member sees them.

    Attributes:
        me: that member.
        members: those that are alive; without ``me`` before its first renewal.
        leases: by partition.
        held: the fence of each lease that ``me`` holds. An owner that does not hold its lease
            has lost it, or never learned that it was granted.
        overdue: partitions that ``me`` has wanted for longer than a handover may take.
    """

    me: str
    members: frozenset[str]
    leases: Mapping[str, Lease]
    held: Mapping[str, int] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Moves:
    """What a member is to do next.

    Attributes:
        take: partitions that nobody alive owns, or whose owner did not let go, with the fence
            that was seen.
        want: partitions whose owner is to hand them over.
        hand_over: own partitions that another member waits for: drain, flush, release.
    """

    take: Mapping[str, int]
    want: Sequence[str]
    hand_over: Sequence[str]


def is_readable(partition: str, leases: Mapping[str, Lease]) -> bool:
    """It has not ended, and all of its parents have.

    A parent without a lease is one that the broker no longer stores: nothing waits for it.
    """
    lease = leases[partition]
    return not lease.ended and all(leases[p].ended for p in lease.parents if p in leases)
