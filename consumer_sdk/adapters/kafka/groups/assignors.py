"""How a group's leader shares out partitions: Java's assignors by their names, as pure functions.

``range`` and ``roundrobin`` give what Java's give, partition by partition. Any member may be the leader, so a group of
mixed clients has the same assignment whichever member leads it. Java's preference for partitions in a member's rack
(KIP-881) is left out: a member tells its rack to leaders, but this leader does not use racks.

``sticky`` and ``cooperative-sticky`` promise what Java's promise, and choose their own partitions:

- Balanced: of two members, one has at most one partition more, or none that the other could take.
- Sticky: if all members have the same topics, as many partitions stay where they are as balance allows. With different topics,
  what moves is chosen greedily.
- Of two claims of one partition, the one with the newer generation counts. If both have the same generation, neither
  counts (KIP-792).
- Cooperative: a partition that a member claims is given to another one only after the first has joined without it
  (KIP-429). It is left out of this generation, and the member that gives it up joins again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    read_claims,
    read_generation,
    write_claims,
    write_generation,
)

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]

Shares: TypeAlias = dict[str, set[TopicPartition]]
"""Member → what it gets."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as its leader sees it."""

    subscription: Subscription
    instance_id: str | None = None


class Assignor(ABC):
    """One way to share partitions out."""

    name: str
    is_cooperative = False
    """Whether a member may keep what it holds while it joins."""
    is_forgetful = False
    """Whether it gives the same again to the same members, whatever they had."""

    def subscription(self, held: Subscription, given: Claims) -> Subscription:  # noqa: ARG002 - for those that need it
        """What this member tells its leader.

        Args:
            held: topics, what is held now, its generation, and the rack.
            given: the last assignment, which an eager member has given up by now.
        """
        return held

    @abstractmethod
    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """Shares out.

        Args:
            members: by member id.
            partitions: how many each topic has; a topic that is not there has none.

        Returns:
            An assignment for each member.
        """

    def assigned(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 - most remember nothing
        """This member was given this, whoever leads."""


class RangeAssignor(Assignor):
    """Topic by topic: neighbouring partitions to each member; the first ones have one more."""

    name = "range"
    is_forgetful = True

    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """See `Assignor.assign`."""
        shares = _no_shares(members)
        for topic, takers in _takers(members).items():
            parts, least = iter(_all_of({topic: partitions.get(topic, 0)})), len(takers)
            each, more = divmod(partitions.get(topic, 0), least)
            for place, member in enumerate(takers):
                shares[member].update(islice(parts, each + (place < more)))
        return _assignments(shares)


class RoundRobinAssignor(Assignor):
    """One partition after the other to the next member that has its topic."""

    name = "roundrobin"
    is_forgetful = True

    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """See `Assignor.assign`."""
        shares, circle = _no_shares(members), sorted(members, key=_java_order(members))
        takers, at = _takers(members), 0
        for tp in _all_of({topic: partitions.get(topic, 0) for topic in takers}):
            while tp.topic not in members[circle[at]].subscription.topics:
                at = (at + 1) % len(circle)
            shares[circle[at]].add(tp)
            at = (at + 1) % len(circle)
        return _assignments(shares)


class StickyAssignor(Assignor):
    """Balanced, and partitions stay where they were; members give all up before they join."""

    name = "sticky"

    def subscription(self, held: Subscription, given: Claims) -> Subscription:
        """The last assignment goes as user data."""
        data = write_claims(given) if given != Claims() else None
        return Subscription(held.topics, data, held.owned, held.generation, held.rack)

    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """See `Assignor.assign`."""
        claims = {name: read_claims(each.subscription.user_data) for name, each in members.items()}
        return _assignments(_share_stickily(members, partitions, claims))


class CooperativeStickyAssignor(Assignor):
    """Balanced, and partitions stay where they are; what moves is given up in one generation and given out in the next."""

    name = "cooperative-sticky"
    is_cooperative = True

    def subscription(self, held: Subscription, given: Claims) -> Subscription:  # noqa: ARG002
        """The generation goes as user data too, as Java's."""
        data = write_generation(held.generation)
        return Subscription(held.topics, data, held.owned, held.generation, held.rack)

    def assign(
        self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]
    ) -> dict[str, Assignment]:
        """See `Assignor.assign`."""
        claims = {name: _owned(each.subscription) for name, each in members.items()}
        shares = _share_stickily(members, partitions, claims)
        _withhold_claimed(shares, claims)
        return _assignments(shares)


def _owned(subscription: Subscription) -> Claims:
    generation = subscription.generation
    if generation < 0:  # librdkafka and old Java have it in the user data
        generation = read_generation(subscription.user_data)
    return Claims(subscription.owned, generation)


def _withhold_claimed(shares: Shares, claims: Mapping[str, Claims]) -> None:
    """Whoever claims a partition may be handling it, however old the claim is."""
    owners = _owners(claims)
    claimants = defaultdict[TopicPartition, set[str]](set)
    for member, claim in claims.items():
        for tp in claim.partitions:
            claimants[tp].add(member)
    for member, tps in shares.items():
        others = {tp for tp in tps if claimants.get(tp, set()) - {member}}
        tps -= {tp for tp in others if owners.get(tp) != member}


# -- the sticky share -----------------------------------------------------------------------------


def _owners(claims: Mapping[str, Claims]) -> dict[TopicPartition, str]:
    """Whose claim of a partition counts; a partition with two newest claims has no owner."""
    newest = dict[TopicPartition, tuple[int, str | None]]()
    for member, claim in claims.items():
        for tp in claim.partitions:
            generation, _ = newest.get(tp, (-2, None))
            if claim.generation > generation:
                newest[tp] = claim.generation, member
            elif claim.generation == generation:
                newest[tp] = generation, None
    return {tp: member for tp, (_, member) in newest.items() if member is not None}


def _share_stickily(
    members: Mapping[str, GroupMember], partitions: Mapping[str, int], claims: Mapping[str, Claims]
) -> Shares:
    """Keeps what may stay, gives out the rest, and evens out."""
    topics = {member: each.subscription.topics for member, each in members.items()}
    known = _all_of({topic: partitions.get(topic, 0) for topic in _takers(members)})
    kept, exists = _no_shares(members), set(known)
    for tp, member in _owners(claims).items():
        if tp in exists and tp.topic in topics[member]:
            kept[member].add(tp)
    if len(set(topics.values())) == 1:
        return _share_alike(kept, known)
    return _Levelling(topics, kept, known).shares


def _share_alike(kept: Shares, known: list[TopicPartition]) -> Shares:
    """All members have the same topics: as many as can stay do.

    Each member gets ``least`` partitions, and ``more`` of them get one besides: those who have it already come first.
    """
    least, more = divmod(len(known), len(kept))
    rich_first = sorted(kept, key=lambda member: (-len(kept[member]), member))
    rooms = {member: least + (place < more) for place, member in enumerate(rich_first)}
    shares = {member: set(islice(sorted(tps), rooms[member])) for member, tps in kept.items()}
    taken = set[TopicPartition]().union(*shares.values())
    rest = (tp for tp in known if tp not in taken)
    for member in _in_turns({member: rooms[member] - len(shares[member]) for member in shares}):
        shares[member].add(next(rest))
    return shares


def _in_turns(rooms: Mapping[str, int]) -> Iterator[str]:
    """Each member as often as it has room, the others in between: so that a topic is spread."""
    turn = 0
    while rooms := {member: room for member, room in rooms.items() if room > turn}:
        yield from sorted(rooms)
        turn += 1


class _Levelling:
    """Members have different topics: gives out what nobody has, then moves one partition after the other.

    Each move lessens the sum of the squares of the members' loads, so there is an end. A partition moves only to a member
    that has two less at the least: KIP-54's balance is where no such move is left.
    """

    def __init__(
        self, topics: Mapping[str, frozenset[str]], kept: Shares, known: Iterable[TopicPartition]
    ) -> None:
        self.shares = kept
        self._topics = topics
        self._kept = {member: frozenset(tps) for member, tps in kept.items()}
        self._takers = defaultdict[str, list[str]](list)
        for member in sorted(topics):
            for topic in topics[member]:
                self._takers[topic].append(member)
        self._by_topic = {member: _by_topic(tps) for member, tps in kept.items()}
        self._give_out(known)
        while self._level():
            pass

    def _give_out(self, known: Iterable[TopicPartition]) -> None:
        taken = set[TopicPartition]().union(*self.shares.values())
        rest = [tp for tp in known if tp not in taken]
        for tp in sorted(rest, key=lambda tp: (len(self._takers[tp.topic]), tp)):
            self._add(min(self._takers[tp.topic], key=self._load), tp)

    def _level(self) -> bool:
        """Fills up each member, the poorest first; False if all is level."""
        return any([self._fill(member) for member in sorted(self.shares, key=self._load)])  # noqa: C419 - all are to be filled

    def _fill(self, member: str) -> bool:
        is_changed = False
        while (giver := self._richest_giver(member)) is not None:
            tp = min(self._movable(giver, member), key=lambda tp: self._regret(tp, giver, member))
            self.shares[giver].remove(tp)
            self._by_topic[giver][tp.topic].remove(tp)
            self._add(member, tp)
            is_changed = True
        return is_changed

    def _richest_giver(self, member: str) -> str | None:
        """Who has two more at the least, and something that the member can take."""
        givers = {
            giver
            for topic in self._topics[member]
            for giver in self._takers[topic]
            if self._load(giver) > self._load(member) + 1 and self._by_topic[giver].get(topic)
        }
        return max(givers, key=lambda giver: (self._load(giver), giver), default=None)

    def _movable(self, giver: str, member: str) -> Iterator[TopicPartition]:
        for topic in self._topics[member]:
            yield from self._by_topic[giver].get(topic, ())

    def _regret(self, tp: TopicPartition, giver: str, member: str) -> tuple[bool, bool, Any]:
        """First what the member had, then what the giver has not had, then the last ones."""
        return tp not in self._kept[member], tp in self._kept[giver], (tp.topic, -tp.partition)

    def _load(self, member: str) -> int:
        return len(self.shares[member])

    def _add(self, member: str, tp: TopicPartition) -> None:
        self.shares[member].add(tp)
        self._by_topic[member].setdefault(tp.topic, set()).add(tp)


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, set[TopicPartition]]:
    found = dict[str, set[TopicPartition]]()
    for tp in tps:
        found.setdefault(tp.topic, set()).add(tp)
    return found


# -- what they share ------------------------------------------------------------------------------


def _java_order(members: Mapping[str, GroupMember]) -> Callable[[str], tuple[bool, bytes]]:
    """Static members first, by instance id; the others by member id; texts by UTF-16's units."""

    def key(member: str) -> tuple[bool, bytes]:
        instance = members[member].instance_id
        text = member if instance is None else instance
        return instance is None, text.encode("utf-16-be", "surrogatepass")

    return key


def _takers(members: Mapping[str, GroupMember]) -> dict[str, list[str]]:
    """Topic → the members that have it, in Java's order."""
    takers = dict[str, list[str]]()
    for member in sorted(members, key=_java_order(members)):
        for topic in members[member].subscription.topics:
            takers.setdefault(topic, []).append(member)
    return takers


def _all_of(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])
    ]


def _no_shares(members: Iterable[str]) -> Shares:
    return {member: set() for member in members}


def _assignments(shares: Shares) -> dict[str, Assignment]:
    return {member: Assignment(frozenset(tps)) for member, tps in shares.items()}
