"""Which member should have which partition: the same answer for all members that see the same leases.

There is no leader. Each member computes all shares, and does its own part of what they ask for; where
two members saw different leases, the fence of the take decides. A member's share follows its weight,
rounded up or down. No partition moves without need: shares are rounded up for members that have more
already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from consumer_sdk.records.leases import Lease, LeaseView, Moves, is_readable, limit_of, weight_of

__all__ = ["balance", "moves"]


def balance(
    members: AbstractSet[str],
    leases: Mapping[str, Lease],
    silent: AbstractSet[str] = frozenset(),
) -> dict[str, str]:
    """The member that each partition which can be read now should belong to.

    A partition stays with its owner while the owner's share has room for it; those that somebody
    waits for go first, and to who waits. Once all is as it says, it says the same again. Where all
    members have as many as their limits allow, the rest belongs to nobody.

    Args:
        members: those alive; nobody else gets, or keeps, anything.
        silent: those of them that may be dead: what no member owns goes to others, even beyond
            their shares.
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
    targets.update(zip((p for p in left if p not in targets), rest, strict=False))
    orphans = [p for p in targets if leases[p].owner not in members and targets[p] in silent]
    return targets | _adopted(orphans, Counter(targets.values()), sorted(members - silent))


def _shares(
    members: AbstractSet[str], owners: Iterable[str | None], partitions: int
) -> dict[str, int]:
    """How many each is to have: a share by its weight, or its limit where that is less."""
    owned = Counter(owners)
    shares: dict[str, int] = {}
    left = sorted(members)
    while left:
        total = sum(map(weight_of, left))
        exact = {m: divmod(partitions * weight_of(m), total) for m in left}
        full = [member for member in left if limit_of(member) <= exact[member][0]]
        if not full:
            return shares | _rounded(exact, owned, partitions)
        shares |= {member: int(limit_of(member)) for member in full}
        partitions -= sum(shares[member] for member in full)
        left = [member for member in left if member not in shares]
    return shares


def _rounded(
    exact: Mapping[str, tuple[int, int]], owned: Counter[str | None], partitions: int
) -> dict[str, int]:
    """Whole numbers, by the quotients and remainders of exact shares; at most one is added."""
    shares = {member: low for member, (low, _) in exact.items()}
    with_rest = [member for member, (_, rest) in exact.items() if rest]
    by_claim = sorted(with_rest, key=lambda m: (shares[m] - owned[m], -exact[m][1], m))
    for member in by_claim[: partitions - sum(shares.values())]:
        shares[member] += 1
    return shares


def _adopted(orphans: Iterable[str], counts: Counter[str], members: list[str]) -> dict[str, str]:
    """Partitions that would go to who may be dead, each to who has least for its weight."""
    targets: dict[str, str] = {}
    for partition in orphans:
        able = [member for member in members if counts[member] < limit_of(member)]
        if able:
            member = min(able, key=lambda each: counts[each] / weight_of(each))
            targets[partition] = member
            counts[member] += 1
    return targets


def _is_wanted(lease: Lease, members: AbstractSet[str]) -> bool:
    return lease.wanted_by != lease.owner and lease.wanted_by in members


def moves(view: LeaseView) -> Moves:
    """What ``view.me`` is to do so that everybody comes to what `balance` says."""
    targets = balance(view.members, view.leases, view.silent)
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
        unread=[p for p in view.leases if is_readable(p, view.leases) and p not in targets]
        if targets
        else [],
        unwant=[
            p
            for p, x in view.leases.items()
            if x.wanted_by == view.me and targets.get(p) != view.me
        ],
    )


def _has_other_owner(lease: Lease, view: LeaseView) -> bool:
    return lease.owner != view.me and lease.owner in view.members
