"""One member's leases, kept as one text that is replaced as a whole, in any backend.

A change is a function of the table. The member applies it to the text that it has read, and writes the
result if that text is still stored; otherwise it reads again and applies it anew. So each change is one
step, and members balance what was stored at one moment. A member writes one text at a time: changes that
come meanwhile are written together in the next text. Renewals are stored beside the text, and wait for
no change.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, final

from consumer_sdk.abc import Clock, Leases
from consumer_sdk.errors import (
    CheckpointFormatError,
    ConfigurationError,
    ConsumerClosedError,
    ConsumerSdkError,
    TransientStoreError,
)
from consumer_sdk.leases.backend import LeaseBackend, Reading
from consumer_sdk.leases.liveness import Liveness
from consumer_sdk.leases.table import LeaseTable
from consumer_sdk.records.leases import LeaseView, named

__all__ = ["TableLeases"]

T = TypeVar("T")

HEAVIEST = 999_999
"""Of members' weights: so many digits are read of a member's name."""

ROUNDS = 50
"""How often others may come in between reading and writing; each time one of them got on."""


class _Change:
    """A change of the table, and what came of it. One that raises has changed nothing."""

    __slots__ = ("_make", "error", "result")

    def __init__(self, make: Callable[[LeaseTable], Any]) -> None:
        self._make = make
        self.result: Any = None
        self.error: ConsumerSdkError | None = None

    def apply(self, table: LeaseTable) -> None:
        self.error = None
        try:
            self.result = self._make(table)
        except ConsumerSdkError as error:
            self.error = error


@final
class TableLeases(Leases):
    """One member's leases in some place; see `consumer_sdk.abc.Leases`.

    Args:
        backend: where they are kept.
        where: the same in words, for errors.
        member: a name that nobody has had before.
        most: see `consumer_sdk.abc.CheckpointStore.leases`.
        weight: likewise.
        clock: the event loop's time by default.

    Raises:
        ConfigurationError: a time, ``most`` or ``weight`` that is out of bounds.
    """

    def __init__(
        self,
        backend: LeaseBackend,
        where: str,
        member: str,
        *,
        duration: float,
        handover: float,
        most: int | None = None,
        weight: int = 1,
        clock: Clock | None = None,
    ) -> None:
        if not (0 < duration < math.inf and 0 < handover < math.inf):
            raise ConfigurationError(f"{duration=}, {handover=}: give seconds above 0")
        if most is not None and most < 1:
            raise ConfigurationError(f"{most=}: give a number of partitions above 0, or None")
        if not 1 <= weight <= HEAVIEST:
            raise ConfigurationError(f"{weight=}: give a whole number from 1 to {HEAVIEST}")
        self.member = named(member, most, weight)
        self.duration = duration
        self.handover = handover
        self._backend = backend
        self._where = where
        self._now = asyncio.get_running_loop().time if clock is None else clock.monotonic
        self._wall = time.time if clock is None else clock.wall
        self._liveness = Liveness(duration)
        self._dead: Mapping[str, int] = {}
        self._held: dict[str, int] = {}
        self._waits: dict[str, tuple[int, float]] = {}
        self._renewals = 0
        self._expires_at = -math.inf
        self._viewed: tuple[int, frozenset[str]] | None = None
        self._writing = asyncio.Lock()
        self._waiting: dict[_Change, None] = {}
        self._last: tuple[str | None, LeaseTable] = None, LeaseTable()
        self._is_closed = False

    async def sync(
        self, parents: Mapping[str, Sequence[str]], *, identity: str | None = None
    ) -> None:
        await self._change(lambda table: table.sync(parents, identity))

    async def take(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        if not seen:
            return {}
        taken = await self._change(lambda table: table.take(self.member, seen))
        self._held.update(taken)
        return taken

    async def want(self, partitions: Sequence[str]) -> None:
        if partitions:
            await self._change(lambda table: table.want(self.member, partitions))

    async def unwant(self, partitions: Sequence[str]) -> None:
        if partitions:
            await self._change(lambda table: table.unwant(self.member, partitions))

    async def release(self, held: Mapping[str, int], *, ended: bool = False) -> None:
        self._drop(held)
        if held:
            await self._change(lambda table: table.release(self.member, held, ended=ended))

    async def reopen(self, partitions: Sequence[str] | None = None) -> None:
        await self._change(lambda table: table.reopen(partitions))

    async def evict(self, seen: Mapping[str, int]) -> Sequence[str]:
        return await self._change(lambda table: table.evict(seen))

    async def clear(self) -> bool:
        for _ in range(ROUNDS):
            reading = await self._read()
            if reading.text is None:
                return False
            # Fences of a text that cannot be read are not known. A millisecond is less than a take
            # lasts, so that this is above each of them, also after an earlier `clear`.
            fence = int(self._wall() * 1000)
            with suppress(CheckpointFormatError):
                fence = max(fence, self._table(reading).fence)
            if await self._backend.replace(reading.version, LeaseTable(fence=fence).encode()):
                return True
        raise self._overrun()

    async def view(self) -> LeaseView:
        asked = self._now()
        reading = await self._read()
        now = self._now()
        table = self._table(reading)
        alive = self._liveness.observe(reading.members, asked, now)
        if self.member in reading.members:
            alive |= {self.member}
        silent = self._liveness.silent(alive) - {self.member}
        self._dead = {m: count for m, count in reading.members.items() if m not in alive}
        self._viewed = reading.version, frozenset(reading.members)
        overdue = self._overdue(table, now)
        return LeaseView(self.member, alive, table.leases, dict(self._held), overdue, silent)

    def _overdue(self, table: LeaseTable, now: float) -> frozenset[str]:
        self._waits = {
            partition: (lease.fence, self._since(partition, lease.fence, now))
            for partition, lease in table.leases.items()
            if lease.wanted_by == self.member
        }
        limit = self.handover + self.duration
        return frozenset(p for p, (_, since) in self._waits.items() if now - since >= limit)

    def _since(self, partition: str, fence: int, now: float) -> float:
        """Since when this owner has been waited for."""
        known, since = self._waits.get(partition, (None, now))
        return since if known == fence else now

    async def renew(self) -> Sequence[str]:
        held, started = dict(self._held), self._now()
        patience = self._expires_at - started
        if patience <= 0:  # the loop was blocked, or the process stopped: perhaps nobody noticed
            patience = self.duration / 3
        try:
            async with asyncio.timeout(patience if held else None):
                table = await self._renew()
        except TimeoutError:
            return self._drop(held)
        except TransientStoreError:
            if not held or self._now() < self._expires_at:
                raise
            return self._drop(held)
        self._expires_at = started + self.duration
        return self._drop({p: f for p, f in held.items() if not table.is_held(self.member, p, f)})

    async def _renew(self) -> LeaseTable:
        self._check_open()
        self._renewals += 1
        await self._backend.renew(self.member, self._renewals, self._dead)
        return self._table(await self._backend.read())

    def _drop(self, gone: Mapping[str, int]) -> list[str]:
        """Holds them no more; leaves out what was released, or taken anew, in the meantime."""
        dropped = [p for p, fence in gone.items() if self._held.get(p) == fence]
        for partition in dropped:
            del self._held[partition]
        return dropped

    async def changed(self, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            version, _, members = await self._read()
            if (version, frozenset(members)) != self._viewed:
                return True
            left = deadline - loop.time()
            if left <= 0:
                return False
            await self._backend.wait(left)

    async def aclose(self) -> None:
        if self._is_closed:
            return
        with suppress(ConsumerSdkError, TimeoutError):
            async with asyncio.timeout(self.duration):
                await self.release(dict(self._held))
                await self._backend.leave(self.member)
        self._is_closed = True

    async def _change(self, make: Callable[[LeaseTable], T]) -> T:
        """Makes a change together with all others that wait for the one under way.

        A thousand releases that came in between each other would fail by each other.
        """
        mine = _Change(make)
        self._waiting[mine] = None
        try:
            async with self._writing:
                if mine in self._waiting:
                    await self._write(list(self._waiting))
        finally:
            self._waiting.pop(mine, None)  # cancelled: others may make theirs without it
        if mine.error is not None:
            raise mine.error
        result: T = mine.result
        return result

    async def _write(self, changes: Sequence[_Change]) -> None:
        """Makes them; whoever is cancelled in it leaves them to the next one that waits."""
        try:
            await self._replace(changes)
        except ConsumerSdkError as error:
            for change in changes:
                change.error = error
        for change in changes:
            self._waiting.pop(change, None)

    async def _replace(self, changes: Sequence[_Change]) -> None:
        for _ in range(ROUNDS):
            reading = await self._read()
            before = self._table(reading)
            after = before.copy()
            for change in changes:
                change.apply(after)
            after.date(before, self._wall())
            if after == before:
                return
            text = after.encode()
            if await self._backend.replace(reading.version, text):
                self._last = text, after
                return
        raise self._overrun()

    def _overrun(self) -> TransientStoreError:
        return TransientStoreError(f"{self._where}: others came in between {ROUNDS} times")

    async def _read(self) -> Reading:
        self._check_open()
        return await self._backend.read()

    def _table(self, reading: Reading) -> LeaseTable:
        if reading.text is None:
            return LeaseTable()
        if reading.text != self._last[0]:  # most looks find what the last one has found
            table = LeaseTable.decode(reading.text, self._where, self._last[1])
            self._last = reading.text, table
        return self._last[1]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosedError(f"{self._where}: the member {self.member} has left")
