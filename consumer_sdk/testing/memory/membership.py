"""A consumer's life in a group: it joins, holds partitions, gives them up and joins again.

One task does this and tells the runtime (`Membership.coordinate`), beside one that asks it where holdings
start (`GrantRounds`). Other callers only leave a note: a rebalance or the end of the session sets
``_must_give_up``, and a drop closes a holding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.testing.memory.broker import MemoryBroker
from consumer_sdk.testing.memory.group import Group, Member
from consumer_sdk.testing.memory.holding import Holding

__all__ = ["Membership"]

DRAIN_SHARE = 0.8
"""How much of the rebalance timeout a drain may take; the rest is for joining again."""

DROPPED = 0.1
"""Seconds before a dropped one comes back."""


class Membership:
    """One member of a group and what it holds.

    Args:
        make_holding: for a partition that was granted; None when it does not exist any more.
        on_news: called when there may be something to fetch, or an error to raise.
        is_alone: it shares its partitions with nobody: a group of its own gives it all.

    Attributes:
        holdings: what is held now.
        error: why the owner's last `assigned` failed, unless that may pass; to be raised from
            fetch, once.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        streams: Sequence[str],
        group: str | None,
        owner: AssignmentOwner,
        *,
        make_holding: Callable[[Assignment], Holding | None],
        on_news: Callable[[], None],
        is_alone: bool,
    ) -> None:
        self.holdings = AssignmentBook[Holding]()
        self.error: Exception | None = None
        member_id = broker.next_member_id()
        self.member = Member(member_id, tuple(streams), self._on_rebalance)
        name = f"private to {member_id}" if is_alone or group is None else group
        self.group: Group = broker.group(name)
        self._is_private = name != group
        self._make_holding = make_holding
        self._broker = broker
        self._owner = owner
        self._on_news = on_news
        self._rounds = GrantRounds(
            owner,
            self.holdings,
            self._grant_all,
            failed=self._failed,
            budget=DRAIN_SHARE * self.group.rebalance_timeout,
        )
        self._must_give_up = asyncio.Event()
        self._is_joined = False
        self._is_crashed = False

    # Called by anyone ------------------------------------------------------------------

    def close(self) -> None:
        """Asks `coordinate` to give everything up and to leave."""
        self.holdings.end_offers()
        self._must_give_up.set()
        if not self.holdings:  # it may be waiting for the others in `join`
            self.group.leave(self.member)

    def crash(self) -> None:
        """The process was killed: no heartbeat, no leave, no reaction to anything."""
        self._is_crashed = True
        self.group.silence(self.member)

    def drop(self, assignment: Assignment) -> None:
        """Stops reading it; grants it again after a while if it is still in the share."""
        if self.holdings.close(self.holdings.of_all([assignment])):
            loop = asyncio.get_running_loop()
            loop.call_later(DROPPED, self._grant_again, assignment.partition)

    def is_current(self, holding: Holding) -> bool:
        """The group still grants it to this member in this generation."""
        fence = self.member.generation
        partition = holding.assignment.partition
        is_of_this_generation = self._is_private or holding.assignment.fence == fence
        return is_of_this_generation and self.group.holds(self.member, fence, partition)

    # The coordinating task -------------------------------------------------------------

    async def coordinate(self) -> None:
        """Runs until `close`; what is held is given up first."""
        granting = asyncio.create_task(self._rounds.run())
        try:
            while not self.holdings.is_closing:
                self._must_give_up.clear()
                if self._is_crashed:  # it was giving up when it was killed: the dead do not join
                    await asyncio.get_running_loop().create_future()
                await self.group.join(self.member)
                if not self.holdings.is_closing:
                    self._is_joined = True
                    self._grant(tuple(self.member.share))
                    await self._must_give_up.wait()
                    self._is_joined = False
                    await self._give_up()
        finally:
            granting.cancel()
            if not self._is_crashed:
                self.group.leave(self.member)
            await asyncio.wait({granting})

    def _grant(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            assignment = Assignment(
                partition,
                epoch=self._broker.next_epoch(),
                fence=None if self._is_private else self.member.generation,
                discovered=self.group.is_discovered(partition),
            )
            holding = self._make_holding(assignment)
            if holding is not None:
                self.holdings.offer(holding)
        self._rounds.wake()

    def _grant_again(self, partition: Partition) -> None:
        # The share is that of before until the member has joined again. What is granted of it while all is
        # given up would be revoked by nobody.
        is_serving = self._is_joined and not self._must_give_up.is_set()
        is_ours = partition in self.member.share and self.holdings.at(partition) is None
        if is_serving and is_ours:
            self._grant([partition])

    async def _grant_all(self) -> None:
        """What the owner does not take is left alone until the next rebalance."""
        for holding in (await self._rounds.ask(self.holdings)).started:
            self.holdings.open(holding)
            holding.begin()
        self._on_news()

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._on_news()

    async def _give_up(self) -> None:
        """Has the owner drain and flush, unless the session is over; then forgets all."""
        try:
            if self.member.generation < 0:
                self._rounds.lose(
                    self.holdings
                )  # now: while a question ends, they would be fetched
                await self._rounds.end()
            elif self.holdings:
                await self._rounds.revoke(list(self.holdings))
        finally:
            self.holdings.close(self.holdings)

    def _on_rebalance(self) -> None:
        if self.member.generation < 0 and self._is_crashed:
            self.holdings.close(self.holdings)  # the broker has noticed that the process is dead
        elif self.member.generation < 0 and self._must_give_up.is_set():
            self._rounds.lose(self.holdings)  # the drain took too long, or the session ended in it
        if not self._is_crashed:
            self._must_give_up.set()
