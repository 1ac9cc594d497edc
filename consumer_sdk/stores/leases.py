"""Leases kept as one text that is replaced as a whole: the same rules wherever the text is.

A change is a function of the table. It is made on what was read, and written if that is still what
is stored; else it is made again on what is stored now. So each change is one step, and everybody
balances what stood in the store at one moment.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, final

from consumer_sdk.abc import Clock, Leases
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    ConsumerSdkError,
    TransientStoreError,
)
from consumer_sdk.records.leases import LeaseView
from consumer_sdk.stores.lease_place import LeasePlace, Reading
from consumer_sdk.stores.lease_table import LeaseTable
from consumer_sdk.stores.liveness import Liveness

__all__ = ["TableLeases", "new_member"]

T = TypeVar("T")

ROUNDS = 50
"""How often others may come in between reading and writing; each time one of them got on."""


def new_member() -> str:
    """A name that nobody has had before.

    Chance comes first: who gets the odd partition of a stream follows the order of the names.
    """
    return f"{secrets.token_hex(8)}/{socket.gethostname()}/{os.getpid()}"


@final
class TableLeases(Leases):
    """One member's leases in some place; see `consumer_sdk.abc.Leases`.

    Args:
        place: where they are.
        where: the same in words, for errors.
        member: a name that nobody has had before.
        clock: the event loop's time by default.

    Raises:
        ConfigurationError: a time that is not above 0.
    """

    def __init__(
        self,
        place: LeasePlace,
        where: str,
        member: str,
        *,
        duration: float,
        handover: float,
        clock: Clock | None = None,
    ) -> None:
        if not (0 < duration < math.inf and 0 < handover < math.inf):
            raise ConfigurationError(f"{duration=}, {handover=}: give seconds above 0")
        self.member = member
        self.duration = duration
        self.handover = handover
        self._place = place
        self._where = where
        self._now = asyncio.get_running_loop().time if clock is None else clock.monotonic
        self._liveness = Liveness(duration)
        self._dead: Mapping[str, int] = {}
        self._held: dict[str, int] = {}
        self._waits: dict[str, tuple[int, float]] = {}
        self._renewals = 0
        self._expires_at = -math.inf
        self._viewed: tuple[int, frozenset[str]] | None = None
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

    async def release(self, held: Mapping[str, int], *, ended: bool = False) -> None:
        self._drop(held)
        if held:
            await self._change(lambda table: table.release(self.member, held, ended=ended))

    async def view(self) -> LeaseView:
        asked = self._now()
        reading = await self._read()
        now = self._now()
        table = self._table(reading)
        alive = self._liveness.observe(reading.members, asked, now)
        if self.member in reading.members:
            alive |= {self.member}
        self._dead = {m: count for m, count in reading.members.items() if m not in alive}
        self._viewed = reading.version, frozenset(reading.members)
        overdue = self._overdue(table, now)
        return LeaseView(self.member, alive, table.leases, dict(self._held), overdue)

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
        await self._place.renew(self.member, self._renewals, self._dead)
        return self._table(await self._place.read())

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
            await self._place.wait(left)

    async def aclose(self) -> None:
        if self._is_closed:
            return
        with suppress(ConsumerSdkError, TimeoutError):
            async with asyncio.timeout(self.duration):
                await self.release(dict(self._held))
                await self._place.leave(self.member)
        self._is_closed = True

    async def _change(self, change: Callable[[LeaseTable], T]) -> T:
        for _ in range(ROUNDS):
            reading = await self._read()
            before = self._table(reading)
            after = before.copy()
            result = change(after)
            if after == before or await self._place.replace(reading.version, after.encode()):
                return result
        raise TransientStoreError(f"{self._where}: others came in between {ROUNDS} times")

    async def _read(self) -> Reading:
        self._check_open()
        return await self._place.read()

    def _table(self, reading: Reading) -> LeaseTable:
        if reading.text is None:
            return LeaseTable()
        return LeaseTable.decode(reading.text, self._where)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosedError(f"{self._where}: the member {self.member} has left")
