"""A consumer group in the in-memory broker: eager rebalances, generations, fenced commits.

It follows Kafka's classic protocol. A member joins; everybody else is asked to give up what
they hold and to join again; when all have (or the rebalance timeout has passed and the laggards
are out), the generation grows and each member learns its share. Until then the old generation
may commit, which is what makes a last flush in a revoke possible; after that its commits are
refused. A member that falls silent is put out after the session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition

__all__ = ["Commit", "Group", "Member"]

STRANGER = ("", -1, -1)
"""The owner of a commit that no member has written."""


@dataclass(slots=True)
class Commit:
    """The group's place in a partition.

    Attributes:
        position: the first position that is not covered.
        text: the checkpoint that came with it, if it fitted.
        owner: (member, generation, epoch) that wrote it; it orders writes.
        number: the writer's flush.
        is_copy: the writer has a store.
    """

    position: int
    text: str | None
    owner: tuple[str, int, int]
    number: int
    is_copy: bool = False

    @property
    def is_foreign(self) -> bool:
        """No member has written it."""
        return self.owner == STRANGER


@dataclass(slots=True, eq=False)
class Member:
    """One consumer in a group, as the broker sees it.

    Attributes:
        on_rebalance: called when the member has to give up its share and join again, and when
            it was put out.
        generation: that of its share; -1 when it is out of the group.
        share: the partitions that it holds in that generation.
    """

    id: str
    streams: tuple[str, ...]
    on_rebalance: Callable[[], None]
    generation: int = -1
    share: dict[Partition, None] = field(default_factory=dict)
    joining: asyncio.Future[None] | None = field(default=None, repr=False)


class Group:
    """The members of one group and what they have committed.

    Args:
        name: the group's name.
        partitions: what exists now, by stream.
        session_timeout: seconds until a silent member is put out.
        rebalance_timeout: seconds that members have to join again.

    Attributes:
        members: by id, in the order of joining.
        committed: by partition.
        watchers: called with every commit that lands.
    """

    def __init__(
        self,
        name: str,
        partitions: Callable[[str], Sequence[Partition]],
        *,
        session_timeout: float,
        rebalance_timeout: float,
    ) -> None:
        self.name = name
        self.session_timeout = session_timeout
        self.rebalance_timeout = rebalance_timeout
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.committed: dict[Partition, Commit] = {}
        self.watchers: list[Callable[[Partition, Commit], None]] = []
        self._partitions = partitions
        self._known: dict[str, frozenset[Partition]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_rebalancing = False

    async def join(self, member: Member) -> None:
        """Joins, or joins again; returns when the member has its share, or was put out.

        Cancellation: the member counts as joined; call `leave`.
        """
        self.members[member.id] = member
        joined = member.joining = asyncio.get_running_loop().create_future()
        self.rebalance()
        self._complete_if_all_joined()
        await joined

    def leave(self, member: Member) -> None:
        """Takes a member out at once; the others share what it held."""
        if self.members.pop(member.id, None) is not None:
            self._reset(member)
            self.rebalance()
            self._complete_if_all_joined()

    def silence(self, member: Member) -> None:
        """No heartbeat comes any more: puts the member out after the session timeout."""
        loop = asyncio.get_running_loop()
        loop.call_later(self.session_timeout, self.expel, member)

    def expel(self, member: Member) -> None:
        """Ends a member's session; if it still lives, it is told."""
        if self.members.get(member.id) is member:
            self.leave(member)
            member.on_rebalance()

    def rebalance(self) -> None:
        """Asks every member to give up its share and to join again."""
        if self._is_rebalancing or not self.members:
            return
        self._is_rebalancing = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.rebalance_timeout, self._drop_laggards)
        for member in list(self.members.values()):
            if member.joining is None:
                member.on_rebalance()

    def holds(self, member: Member, generation: int, partition: Partition) -> bool:
        """Whether this generation's share of the member may still commit the partition."""
        return (
            self.members.get(member.id) is member
            and member.generation == generation
            and partition in member.share
        )

    def is_discovered(self, partition: Partition) -> bool:
        """The partition appeared after the group first saw its stream."""
        return partition not in self._known.get(partition.stream, ())

    def forget_stream(self, stream: str) -> None:
        """The stream was deleted: what was committed for it goes, too."""
        self._known.pop(stream, None)
        for partition in [p for p in self.committed if p.stream == stream]:
            del self.committed[partition]

    def commit(self, partition: Partition, new: Commit) -> None:
        """Stores a commit, unless the same owner has stored a newer one."""
        old = self.committed.get(partition)
        is_stale = (
            old is not None
            and old.owner == new.owner
            and (new.number < old.number or new.position < old.position)
        )
        if not is_stale:
            self.committed[partition] = new
            for watcher in self.watchers:
                watcher(partition, new)

    def reset(self, partition: Partition, position: int) -> None:
        """Sets the position from outside.

        Raises:
            ConfigurationError: there are members, which would overwrite it.
        """
        if self.members:
            raise ConfigurationError(
                f"the group {self.name!r} has members: {', '.join(self.members)}; its positions can "
                f"be reset when they have left"
            )
        self.committed[partition] = Commit(position, None, STRANGER, 0)

    def shares(self) -> Mapping[str, Sequence[Partition]]:
        """Who holds what, by member."""
        return {member.id: tuple(member.share) for member in self.members.values()}

    def _drop_laggards(self) -> None:
        for member in [m for m in self.members.values() if m.joining is None]:
            del self.members[member.id]
            self._reset(member)
            member.on_rebalance()
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        members = self.members.values()
        if not self._is_rebalancing or any(m.joining is None for m in members):
            return
        self._is_rebalancing = False
        if self._timer:
            self._timer.cancel()
        self.generation += 1
        self._assign()
        for member in members:
            if member.joining is not None and not member.joining.done():
                member.joining.set_result(None)
            member.joining = None

    def _assign(self) -> None:
        """Range assignor: neighbouring partitions go to one member, stream by stream."""
        for member in self.members.values():
            member.generation = self.generation
            member.share = {}
        for stream in sorted({s for m in self.members.values() for s in m.streams}):
            partitions = self._partitions(stream)
            self._known.setdefault(stream, frozenset(partitions))
            takers = [m for m in self.members.values() if stream in m.streams]
            for number, member in enumerate(takers):
                first = number * len(partitions) // len(takers)
                last = (number + 1) * len(partitions) // len(takers)
                member.share |= dict.fromkeys(partitions[first:last])

    @staticmethod
    def _reset(member: Member) -> None:
        member.generation = -1
        member.share = {}
        if member.joining is not None and not member.joining.done():
            member.joining.set_result(None)
        member.joining = None
