"""A consumer's life in a group: it joins, holds partitions, gives them up and joins again.

One task does all this and tells the runtime (`Membership.coordinate`). Other callers only leave a note
and wake it: a rebalance or the end of the session sets ``_must_give_up``, a drop removes a holding, and a
failed `AssignmentOwner.assigned` is tried again after its back-off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.errors import TransientAdapterError, TransientStoreError
from consumer_sdk.records import Assignment, Partition, Start
from consumer_sdk.testing.memory.broker import MemoryBroker
from consumer_sdk.testing.memory.group import Group, Member
from consumer_sdk.testing.memory.holding import Holding

__all__ = ["Membership"]

DRAIN_SHARE = 0.8
"""How much of the rebalance timeout a drain may take; the rest is for joining again."""

FIRST_BACKOFF = 0.1
LAST_BACKOFF = 5.0
"""Seconds between tries of an `assigned` that raised, and before a dropped one comes back."""


class Membership:
    """One member of a group and what it holds.

    Args:
        make_holding: for a partition that was granted; None when it does not exist any more.
        on_news: called when there may be something to fetch, or an error to raise.
        is_alone: it shares its partitions with nobody: a group of its own gives it all.

    Attributes:
        holdings: what is held now, by partition.
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
        self.holdings: dict[Partition, Holding] = {}
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
        self._note = asyncio.Event()
        self._must_give_up = False
        self._is_closing = False
        self._is_crashed = False
        self._backoff = FIRST_BACKOFF

    # Called by anyone ------------------------------------------------------------------

    def close(self) -> None:
        """Asks `coordinate` to give everything up and to leave."""
        self._is_closing = self._must_give_up = True
        self._note.set()
        if not self.holdings:  # it may be waiting for the others in `join`
            self.group.leave(self.member)

    def crash(self) -> None:
        """The process was killed: no heartbeat, no leave, no reaction to anything."""
        self._is_crashed = True
        self.group.silence(self.member)

    def drop(self, assignment: Assignment) -> None:
        """Stops reading it; grants it again after a while if it is still in the share."""
        holding = self.holding(assignment)
        if holding is not None:
            self._release(holding)
            loop = asyncio.get_running_loop()
            loop.call_later(FIRST_BACKOFF, self._grant_again, assignment.partition)

    def holding(self, assignment: Assignment) -> Holding | None:
        """What is held under exactly this grant."""
        holding = self.holdings.get(assignment.partition)
        return holding if holding is not None and holding.assignment is assignment else None

    def is_current(self, holding: Holding) -> bool:
        """The group still grants it to this member in this generation."""
        fence = self.member.generation
        partition = holding.assignment.partition
        is_of_this_generation = self._is_private or holding.assignment.fence == fence
        return is_of_this_generation and self.group.holds(self.member, fence, partition)

    # The coordinating task -------------------------------------------------------------

    async def coordinate(self) -> None:
        """Runs until `close`; what is held is given up first."""
        try:
            while not self._is_closing:
                self._must_give_up = False
                if self._is_crashed:  # it was giving up when it was killed: the dead do not join
                    await asyncio.get_running_loop().create_future()
                await self.group.join(self.member)
                if not self._is_closing:
                    self._grant(tuple(self.member.share))
                    await self._serve()
                    await self._give_up()
        finally:
            if not self._is_crashed:
                self.group.leave(self.member)

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
                self.holdings[partition] = holding

    def _grant_again(self, partition: Partition) -> None:
        if partition in self.member.share and partition not in self.holdings:
            self._grant([partition])
            self._note.set()

    async def _serve(self) -> None:
        """Until everything has to be given up: gets starts from the owner."""
        asked: set[Holding] = set()
        while not self._must_give_up:
            pending = [h for h in self.holdings.values() if h not in asked]
            if not pending:
                await self._wait_for_note()
            elif await self._ask(pending):
                asked.update(pending)

    async def _ask(self, pending: Sequence[Holding]) -> bool:
        """Gets the owner's starts; False if it failed or was interrupted."""
        task = asyncio.ensure_future(self._owner.assigned([h.assignment for h in pending]))
        task.add_done_callback(lambda _: self._note.set())
        try:
            while not task.done() and not self._must_give_up:
                await self._wait_for_note()
        finally:
            if not task.done():
                task.cancel()
                # Ended before `revoked` is called; what it still raises is of no use.
                with suppress(asyncio.CancelledError, Exception):
                    await task
        if self._must_give_up:
            await asyncio.gather(task, return_exceptions=True)  # nobody asks for its error
            return False
        return await self._use_answer(task, pending)

    async def _use_answer(
        self, task: asyncio.Future[Mapping[Assignment, Start]], pending: Sequence[Holding]
    ) -> bool:
        try:
            starts = task.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is asked again
            await self._back_off(error)
            return False
        self._backoff = FIRST_BACKOFF
        for holding in pending:
            self._start(holding, starts.get(holding.assignment))
        self._on_news()
        return True

    async def _back_off(self, error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(
            error, TransientAdapterError | TransientStoreError
        ):
            self.error = error
            self._on_news()
        until = asyncio.get_running_loop().time() + self._backoff
        self._backoff = min(2 * self._backoff, LAST_BACKOFF)
        timer = asyncio.get_running_loop().call_at(until, self._note.set)
        while not self._must_give_up and asyncio.get_running_loop().time() < until:
            await self._wait_for_note()
        timer.cancel()

    def _start(self, holding: Holding, start: Start | None) -> None:
        if self.holding(holding.assignment) is None:
            return  # dropped meanwhile
        if start is None:
            self._release(holding)
            return
        holding.begin(start)
        holding.is_gated = False

    def _release(self, holding: Holding) -> None:
        del self.holdings[holding.assignment.partition]
        holding.end()

    async def _give_up(self) -> None:
        """Has the owner drain and flush, unless the session is over; then forgets all."""
        held = [holding.assignment for holding in self.holdings.values()]
        for holding in self.holdings.values():
            holding.is_gated = True
        loop = asyncio.get_running_loop()
        try:
            if not held:
                return
            if self.member.generation < 0:
                self._owner.lost(held)
            else:
                deadline = loop.time() + DRAIN_SHARE * self.group.rebalance_timeout
                await self._owner.revoked(held, deadline=deadline)
        finally:
            for holding in list(self.holdings.values()):
                self._release(holding)

    async def _wait_for_note(self) -> None:
        self._note.clear()
        await self._note.wait()

    def _on_rebalance(self) -> None:
        if self._is_crashed:
            self._bury()
            return
        if self.member.generation < 0 and self._must_give_up:
            # The drain took too long, or the session ended during it.
            self._owner.lost([holding.assignment for holding in self.holdings.values()])
        self._must_give_up = True
        self._note.set()

    def _bury(self) -> None:
        """The broker has noticed that the process is dead."""
        if self.member.generation < 0:
            for holding in self.holdings.values():
                holding.end()
