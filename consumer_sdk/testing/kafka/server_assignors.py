"""Assignors of the server: who is to have what. Both are deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

__all__ = ["ASSIGNORS", "Slot", "assign_range", "assign_uniform"]

Slot = tuple[bytes, int]
"""Topic id and number of a partition."""

Assignment = dict[str, set[Slot]]


def assign_uniform(
    subscribers: Mapping[str, AbstractSet[bytes]],
    partitions: Mapping[bytes, int],
    former: Mapping[str, AbstractSet[Slot]],
) -> Assignment:
    """As many for each as possible, and nothing moves without need.

    Args:
        subscribers: member id → ids of the topics that it wants.
        partitions: topic id → how many partitions it has.
        former: what each was to have before.
    """
    members = sorted(subscribers)
    slots = [(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])]
    owners = {
        slot: member
        for member in members
        for slot in former.get(member, ())
        if slot[0] in subscribers[member] and slot[1] < partitions.get(slot[0], 0)
    }
    found: Assignment = {member: set() for member in members}
    for slot, owner in owners.items():
        found[owner].add(slot)
    for slot in slots:
        takers = [member for member in members if slot[0] in subscribers[member]]
        if slot not in owners and takers:
            found[_least(takers, found)].add(slot)
    _balance(slots, subscribers, found)
    return found


def _least(members: Iterable[str], found: Assignment) -> str:
    return min(members, key=lambda member: (len(found[member]), member))


def _balance(
    slots: list[Slot], subscribers: Mapping[str, AbstractSet[bytes]], found: Assignment
) -> None:
    """Moves partitions to who has fewer by two or more, until there is none to move."""
    has_moved = True
    while has_moved:
        has_moved = False
        for slot in slots:
            takers = [member for member in found if slot[0] in subscribers[member]]
            owner = next((member for member in takers if slot in found[member]), None)
            if owner is None:
                continue
            least = _least(takers, found)
            if len(found[least]) + 1 < len(found[owner]):
                found[owner].remove(slot)
                found[least].add(slot)
                has_moved = True


def assign_range(
    subscribers: Mapping[str, AbstractSet[bytes]],
    partitions: Mapping[bytes, int],
    former: Mapping[str, AbstractSet[Slot]],  # noqa: ARG001 - a range does not depend on what was
) -> Assignment:
    """Of each topic a range for each of its members, in the order of their ids."""
    found: Assignment = {member: set() for member in subscribers}
    for topic, count in sorted(partitions.items()):
        takers = sorted(member for member in subscribers if topic in subscribers[member])
        for place, member in enumerate(takers):
            first, end = count * place // len(takers), count * (place + 1) // len(takers)
            found[member].update((topic, number) for number in range(first, end))
    return found


ASSIGNORS: Mapping[
    str,
    Callable[
        [Mapping[str, AbstractSet[bytes]], Mapping[bytes, int], Mapping[str, AbstractSet[Slot]]],
        Assignment,
    ],
] = {"uniform": assign_uniform, "range": assign_range}
