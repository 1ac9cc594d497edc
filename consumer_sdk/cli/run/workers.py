"""The workers of a service as one: what an admin server shows, and how it reaches them all.

Nobody is asked while nobody looks. Then all are asked at once, once in half a second at most, and one
that does not answer is waited for once: its question stands, and what it said last is shown until it
answers or ends. What it had counted by then is kept, so that no count falls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, zip_longest
from typing import Any

from consumer_sdk.admin.merging import (
    NOTHING,
    Member,
    Memory,
    ended,
    health,
    labelled,
    merged,
    state_of,
)
from consumer_sdk.admin.sources import FLUSH_TIME, LateError, Source
from consumer_sdk.cli.run.links import GoneError, Link, LinkError
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Partition
from consumer_sdk.runtime import Health, Snapshot
from consumer_sdk.runtime.observing.health import State

__all__ = ["Workers", "after"]

log = logging.getLogger(__name__)

FRESH = 0.5
"""Seconds for which an answer serves."""
PATIENCE = 0.5
"""Seconds that workers have for an answer, before the others are shown without it. A probe of Kubernetes
waits for one second."""
ACTING = 5.0
"""Seconds that workers have to pause or stop."""
MOST = 1000
"""Questions that one may owe an answer to."""

Order = Mapping[str, Any]
"""What was asked for by hand, as a worker is asked: ``do``, ``consumer``, …"""


def after(orders: Sequence[Order], order: Order) -> list[Order]:
    """What a new worker has to be told, so that it is as those who heard all; no longer than needed."""
    if order["do"] == "flush":
        return list(orders)
    return [*(each for each in orders if not _replaces(order, each)), order]


def _replaces(order: Order, earlier: Order) -> bool:
    if (order["do"], order["consumer"]) != (earlier["do"], earlier["consumer"]):
        return False
    if order["do"] == "stop" or order["partition"] == earlier["partition"]:
        return True
    # To resume all resumes each. Who pauses all pauses each, but with the reason of its own.
    return order["partition"] is None and (order["reason"] is None or earlier["reason"] is None)


class _Process:
    """A worker while it runs.

    Attributes:
        snapshots: what it said last, and could be read: of each consumer.
        owes_since: the time of the question that it has not answered.
        is_asked: a question stands.
    """

    def __init__(self, number: int, life: int, link: Link) -> None:
        self.link = link
        self.snapshots: Sequence[Snapshot] = ()
        self.owes_since: float | None = None
        self.is_asked = False
        self._number = number
        self._life = life
        self._is_odd = False
        self._memories: list[Memory] = []

    async def look(self, now: float) -> None:
        """Asks, and keeps the answer; an error is an answer that it still owes."""
        self.is_asked = True
        self.owes_since = now if self.owes_since is None else self.owes_since
        try:
            found = await self.link.ask("look")
        except LinkError:
            return
        finally:
            self.is_asked = False
        self._keep(found)

    async def end(self) -> None:
        """One that has drained has said at its end what it had counted; one that was killed has not."""
        try:
            if found := await self.link.last_words():
                self._keep(found)
        finally:
            self.link.close()

    def _keep(self, found: Sequence[Any]) -> None:
        try:
            snapshots = self._read(found)
        except Exception:
            if not self._is_odd:  # it says so at each look
                log.exception("what worker %d says of itself cannot be read", self._number)
            self._is_odd = True
            return
        self.snapshots, self.owes_since, self._is_odd = snapshots, None, False

    def _read(self, found: Sequence[Any]) -> Sequence[Snapshot]:
        plain = map(Snapshot.from_plain, found)
        snapshots = [labelled(each, self._number, self._life) for each in plain]
        if not snapshots:
            raise LinkError("it has no consumer")
        merged([NOTHING, *snapshots])  # what cannot be added is seen now, and not by the others
        self._memories += [Memory() for _ in snapshots[len(self._memories) :]]
        pairs = zip(self._memories, snapshots, strict=False)
        return [memory.with_forgotten(each) for memory, each in pairs]

    def member(self, consumer: int, now: float) -> Member:
        known = self.snapshots[consumer] if consumer < len(self.snapshots) else None
        is_odd, began = self._is_odd or self.link.is_odd, self.link.began
        silent = 0.0
        if self.owes_since is not None and began is not None and not is_odd:
            silent = now - max(self.owes_since, began)
        return Member(self._number, known, silent=silent, is_odd=is_odd)


def _together(past: Snapshot | None, living: Sequence[Snapshot]) -> Snapshot:
    """What has ended counts, and says nothing of the state."""
    found = merged(living if past is None else [past, *living])
    return replace(found, state=state_of(living))


class Workers(Source):
    """Some workers of one application.

    Args:
        number: how many.
    """

    def __init__(self, number: int) -> None:
        self._processes: dict[int, _Process | None] = dict.fromkeys(range(number))
        self._lives = count(1)
        self._past: list[Snapshot] = []
        self._orders: list[Order] = []
        self._merged: Sequence[Snapshot] | None = None
        self._metered: Sequence[Snapshot] = ()
        self._round: asyncio.Task[None] | None = None
        self._began = 0.0

    # -- their processes --------------------------------------------------------------------------

    @asynccontextmanager
    async def linked(self, number: int) -> AsyncIterator[socket.socket]:
        """The socket for another process of this number, which ends with the block.

        Raises:
            OSError: there are too many files.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = _Process(number, next(self._lives), await Link.over(ours, f"worker {number}"))
            self._processes[number] = process
            _ = [process.link.ask(**order) for order in self._orders]  # read before it consumes
            try:
                yield theirs
            finally:
                await self._end(number, process)

    def left(self, number: int) -> None:
        """This one is not started again."""
        del self._processes[number]

    async def _end(self, number: int, process: _Process) -> None:
        try:
            await process.end()
            self._keep_counts(process)
        except Exception:  # the service goes on, whatever its page shows
            log.exception("what worker %d had counted is not shown any more", number)
        finally:
            self._processes[number] = self._merged = None

    def _keep_counts(self, process: _Process) -> None:
        self._past += [NOTHING] * (len(process.snapshots) - len(self._past))
        for place, snapshot in enumerate(process.snapshots):
            self._past[place] = ended(merged([self._past[place], snapshot]))

    # -- looking ----------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Asks those who owe no answer; bounded.

        Cancellation: others that wait for the answers get them all the same.
        """
        now = asyncio.get_running_loop().time()
        if self._round is None or (self._round.done() and now - self._began >= FRESH):
            self._began = now
            self._round = asyncio.create_task(self._ask_all(now), name="worker round")
        await asyncio.shield(self._round)

    async def _ask_all(self, now: float) -> None:
        asked = [
            asyncio.create_task(self._look(each, now))
            for each in self._processes.values()
            if each is not None and not each.is_asked
        ]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE)
        # Nothing is counted of what nothing is known of yet.
        self._metered = [each for each in self.snapshots() if each.broker]

    async def _look(self, process: _Process, now: float) -> None:
        await process.look(now)
        self._merged = None

    def collector(self) -> Any:
        """Of what was found by the last `refresh`."""
        from consumer_sdk.telemetry.prometheus import collector_of  # of the extra

        return collector_of(lambda: self._metered)

    def snapshots(self) -> Sequence[Snapshot]:
        """Of each consumer, what all workers said last; one of which nothing is known, at first."""
        return [self._judged(place, each) for place, each in enumerate(self._all())]

    @property
    def is_over(self) -> bool:
        """Never: another process may begin; their parent ends whoever shows them."""
        return False

    def states(self) -> Sequence[State]:
        """Of each consumer."""
        return [each.state for each in self._all()]

    def healths(self) -> Sequence[Health]:
        """Of each consumer."""
        return [health(self._members(place)) for place in range(len(self._all()))]

    def _all(self) -> Sequence[Snapshot]:
        if self._merged is None:
            said = [each.snapshots for each in self._processes.values() if each is not None]
            self._merged = [
                _together(past, [each for each in living if each is not None])
                for past, *living in zip_longest(self._past, *said)
            ] or [NOTHING]
        return self._merged

    def _judged(self, consumer: int, found: Snapshot) -> Snapshot:
        members = self._members(consumer)
        ready = sum(each.is_ready for each in members)
        return replace(found, health=health(members), ready_workers=ready)

    def _members(self, consumer: int) -> list[Member]:
        now = asyncio.get_running_loop().time()
        return [
            Member(number, is_running=False) if each is None else each.member(consumer, now)
            for number, each in self._processes.items()
        ]

    # -- acting -----------------------------------------------------------------------------------

    async def set_paused(
        self, consumer: int, partition: Partition | None, reason: str | None
    ) -> None:
        """Of all workers, and of those that start later: a partition stays so wherever it goes."""
        order = {"do": "pause", "consumer": consumer, "partition": partition, "reason": reason}
        await self._tell(order, ACTING)

    async def flush(self, consumer: int) -> None:
        """All of them."""
        await self._tell({"do": "flush", "consumer": consumer}, FLUSH_TIME + PATIENCE)

    async def stop(self, consumer: int) -> None:
        """All of them."""
        await self._tell({"do": "stop", "consumer": consumer}, ACTING)

    async def _tell(self, order: Order, seconds: float) -> None:
        links = {n: each.link for n, each in self._processes.items() if each is not None}
        full = [number for number, link in links.items() if len(link.waiting) >= MOST]
        if full:
            raise LateError(f"worker {full[0]} has not answered {MOST} questions; nothing was done")
        self._orders = after(self._orders, order)
        asked = {link.ask(**order): number for number, link in links.items()}
        if not asked:
            return
        done, late = await asyncio.wait(asked, timeout=seconds)
        failed = {asked[each]: why for each in done if (why := each.exception()) is not None}
        self._began = 0.0  # whoever looks next sees what was done
        if order["do"] != "flush":  # the one after it is told
            failed = {n: why for n, why in failed.items() if not isinstance(why, GoneError)}
        if failed:
            raise ConsumerSdkError("; ".join(f"worker {n}: {why}" for n, why in failed.items()))
        if late:
            who = ", ".join(f"worker {asked[each]}" for each in late)
            raise LateError(f"{who} has not answered within {seconds:g} s; it goes on there")
