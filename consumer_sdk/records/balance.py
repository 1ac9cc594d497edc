"""Who should have which partition: the same answer for every member that sees the same leases.

Nobody is in charge. Each member computes all shares and does its own part of what that asks for;
the fence of a take decides where two of them saw different things. Shares differ by one at most,
and no partition changes hands that need not: the larger shares go to who has most already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from consumer_sdk.records.leases import Lease, LeaseView, Moves, is_readable

__all__ = ["balance", "moves"]


def balance(members: AbstractSet[str], leases: Mapping[str, Lease]) -> dict[str, str]:
    """The member that each partition which can be read now should belong to.

    A partition stays with its owner while the owner's share has room for it; those that somebody
    waits for go first, and to who waits. Once all is as it says, it says the same again.

    Args:
        members: those alive; nobody else gets, or keeps, anything.
    """
    left = sorted(partition for partition in leases if is_readable(partition, leases))
    if not members:
        return {}
    room = _shares(members, (leases[p].owner for p in left), len(left))
    targets: dict[str, str] = {}

    def give(choose: Callable[[Lease], str | None]) -> None:
        for partition in left:
            member = choose(leases[partition])
            if member is not None and partition not in targets and room.get(member):
                room[member] -= 1
                targets[partition] = member

    give(lambda lease: None if _is_wanted(lease, members) else lease.owner)
    give(lambda lease: lease.owner)
    give(lambda lease: lease.wanted_by)
    rest = (member for member in sorted(room) for _ in range(room[member]))
    targets.update(zip((p for p in left if p not in targets), rest, strict=True))
    return targets


def _shares(
    members: AbstractSet[str], owners: Iterable[str | None], partitions: int
) -> dict[str, int]:
    """How many each is to have."""
    owned = Counter(owners)
    low, extra = divmod(partitions, len(members))
    most_first = sorted(members, key=lambda member: (-owned[member], member))
    return {member: low + (place < extra) for place, member in enumerate(most_first)}


def _is_wanted(lease: Lease, members: AbstractSet[str]) -> bool:
    return lease.wanted_by != lease.owner and lease.wanted_by in members


def moves(view: LeaseView) -> Moves:
    """What ``view.me`` is to do so that everybody comes to what `balance` says."""
    targets = balance(view.members, view.leases)
    mine = {p: view.leases[p] for p, member in targets.items() if member == view.me}
    is_owned = {p: _has_other_owner(lease, view) for p, lease in mine.items()}
    return Moves(
        take={
            p: lease.fence
            for p, lease in mine.items()
            if p not in view.held and (not is_owned[p] or p in view.overdue)
        },
        want=[p for p, lease in mine.items() if is_owned[p] and lease.wanted_by != view.me],
        hand_over=[
            p
            for p, member in targets.items()
            if member != view.me
            and view.leases[p].owner == view.me
            and _is_wanted(view.leases[p], view.members)
        ],
    )


def _has_other_owner(lease: Lease, view: LeaseView) -> bool:
    return lease.owner != view.me and lease.owner in view.members
