"""Leases: which member may read which partition of a stream, for brokers that do not assign partitions.

A partition is named by its id here, because the leases of a group are kept for each stream
separately.
A *member* is one consumer that shares the partitions of the stream with the group's others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Lease", "LeaseView", "Moves", "is_readable", "limit_of", "named", "weight_of"]

LIMITED = re.compile(r".*;most=([1-9][0-9]{0,8})", re.DOTALL)
WEIGHTED = re.compile(r".*;weight=([1-9][0-9]{0,5})(?:;most=[0-9]+)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Lease:
    """What is stored of one partition.

    Attributes:
        parents: the partitions that have to end before this one is read.
        owner: the member that took it last and has not released it; it may be dead by now.
        fence: the fence of the last take, above every earlier one of the group and stream; 0 before
            the first.
        wanted_by: the member that waits until the owner has handed it over.
        ended: it was read to its end, and every record of it is settled.
        since: when it was taken, released or ended, in seconds since the epoch, by the clock of the
            member that did that. It is for people, and not compared. None: unknown, or none of this
            has happened.
    """

    parents: tuple[str, ...] = ()
    owner: str | None = None
    fence: int = 0
    wanted_by: str | None = None
    ended: bool = False
    since: float | None = field(default=None, compare=False)


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
        silent: members that have not been seen to renew lately, or yet. They keep what they have,
            and get no partition whose owner has died.
    """

    me: str
    members: frozenset[str]
    leases: Mapping[str, Lease]
    held: Mapping[str, int] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Moves:
    """What a member is to do next.

    Attributes:
        take: partitions that nobody alive owns, or whose owner did not let go, with the fence
            that was seen.
        want: partitions whose owner is to hand them over.
        hand_over: own partitions that another member waits for: drain, flush, release.
        unread: readable partitions without an owner: all members have as many as their limits
            allow.
        unwant: partitions of other members that are no longer this member's share. Otherwise its
            mark would keep counting the time until they are taken without a handover.
    """

    take: Mapping[str, int]
    want: Sequence[str]
    hand_over: Sequence[str]
    unread: Sequence[str] = ()
    unwant: Sequence[str] = ()


def is_readable(partition: str, leases: Mapping[str, Lease]) -> bool:
    """Whether the partition has not ended, and all of its parents have.

    The broker no longer stores a parent without a lease, so nothing waits for it.
    """
    lease = leases[partition]
    return not lease.ended and all(leases[p].ended for p in lease.parents if p in leases)


def named(member: str, most: int | None = None, weight: int = 1) -> str:
    """The name of a member, with its limit of partitions and its weight.

    Both are part of the name because all members have to know them to come to the same shares. The
    limit stands last, where members of an older version look for it.
    """
    weighted = member if weight == 1 else f"{member};weight={weight}"
    return weighted if most is None else f"{weighted};most={most}"


def limit_of(member: str) -> float:
    """How many partitions a member is to have at most; infinite where its name has no limit."""
    found = LIMITED.fullmatch(member)
    return int(found[1]) if found else math.inf


def weight_of(member: str) -> int:
    """How many partitions a member is to have for each one of a member whose name has no weight."""
    found = WEIGHTED.fullmatch(member)
    return int(found[1]) if found else 1
