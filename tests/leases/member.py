"""A simulated process that consumes under leases, as an adapter and its runtime would."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.leases.balance import moves
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.faults import Faults
from tests.leases.ledger import GROUP, STREAM, Ledger, Tenure

__all__ = ["DURATION", "HANDOVER", "Member"]

DURATION, HANDOVER = 3.0, 6.0

WRITES = ("claim", "save", "lease_write")

T = TypeVar("T")


class Surroundings(Protocol):
    """What a process depends on."""

    errors: list[BaseException]
    requests: set[asyncio.Task[Any]]
    is_down: bool
    ledger: Ledger
    root: MemoryStore

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """What the broker lists now."""
        ...

    def is_closed(self, partition: str) -> bool:
        """No record will be added."""
        ...


class DriftingClock:
    """A host's monotonic clock."""

    def __init__(self, offset: float, rate: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset, self._rate = offset, rate

    def monotonic(self) -> float:
        """Starts anywhere; ticks as fast as its quartz."""
        return self._offset + self._rate * self._loop.time()

    def wall(self) -> float:
        """For people alone: it goes back."""
        return 2e9 - self.monotonic()


class Member:
    """One process.

    Args:
        world: what it depends on.
        chance: where its delays come from.
        faults: of its line to the store.
        drift: how much faster its clock is.
    """

    def __init__(
        self, world: Surroundings, chance: random.Random, faults: Faults, drift: float
    ) -> None:
        self.world = world
        self.is_stubborn = False
        self.is_cut = False
        self._chance = chance
        self._faults = faults
        self._may_run = asyncio.Event()
        self._may_run.set()
        self.store = world.root.handle(faults=self)
        clock = DriftingClock(chance.uniform(-3600, 3600), 1 + drift)
        self.leases = self.store.leases(
            GROUP, STREAM, duration=DURATION, handover=HANDOVER, clock=clock
        )
        self.tenures: dict[str, Tenure] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._handing_over: set[str] = set()
        self._epoch = 0
        self._is_leaving = False
        self._main = asyncio.create_task(self._run())
        self._main.add_done_callback(self._ended)

    # Signals ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGSTOP."""
        self._may_run.clear()
        for tenure in self.tenures.values():
            tenure.is_late = True

    def go_on(self) -> None:
        """SIGCONT."""
        self._may_run.set()

    def recover(self) -> None:
        """The network is back."""
        self.is_cut = False

    @property
    def is_running(self) -> bool:
        """Not stopped."""
        return self._may_run.is_set()

    async def kill(self) -> None:
        """SIGKILL."""
        tasks = [self._main, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        self._may_run.set()
        for tenure in self.tenures.values():
            tenure.is_open = False
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """SIGTERM: everything is drained, flushed and released, and renewed until then."""
        self._is_leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDOVER):
                await asyncio.gather(*(self._hand_over(p) for p in list(self.tenures)))
        self._main.cancel()
        await asyncio.gather(self._main, return_exceptions=True)
        await self.leases.aclose()
        await self.kill()

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """The line to the store; what was sent arrives, whoever is stopped, lost or killed."""

        async def arrive() -> T:
            result = await call()
            if seam in WRITES:
                self.world.ledger.audit(self.world.root)
            return result

        await self._running()
        if self.world.is_down or self.is_cut:
            raise TransientStoreError(f"{seam}: no connection")
        request = asyncio.create_task(self._faults.around(seam, arrive))
        self.world.requests.add(request)
        request.add_done_callback(self._arrived)
        await asyncio.wait([request])  # cancels it not
        await self._running()
        return request.result()

    def _arrived(self, request: asyncio.Task[Any]) -> None:
        self.world.requests.discard(request)
        error = request.exception()
        if error is not None and not isinstance(error, TransientStoreError):
            self.world.errors.append(error)

    # The adapter's loop -----------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with suppress(TransientStoreError):
                await (self._renew() if self._is_leaving else self._turn())
                continue
            await self._sleep(0.2)

    async def _renew(self) -> None:
        self._lose(await self.leases.renew())
        await self._sleep(DURATION / 3)

    async def _turn(self) -> None:
        self._lose(await self.leases.renew())
        await self.leases.sync(self.world.listed())
        view = await self.leases.view()
        todo = moves(view)
        for partition, fence in (await self.leases.take(todo.take)).items():
            self._lose([partition])
            self._start(partition, self._work(partition, fence))
        await self.leases.want(todo.want)
        for partition in todo.hand_over:
            if partition in self.tenures and self.is_stubborn:
                self.tenures[partition].is_late = True
            elif partition in self.tenures:
                self._hand_over_soon(partition)
            elif partition not in self._tasks:
                await self.leases.release({partition: view.leases[partition].fence})
        await self.leases.changed(DURATION / 3)

    def _lose(self, partitions: Any) -> None:
        for partition in partitions:
            if tenure := self.tenures.pop(partition, None):
                tenure.is_open = False
                self.world.ledger.counts["lost"] += 1
            for name in (partition, f"over {partition}"):
                if task := self._tasks.pop(name, None):
                    task.cancel()
            self._handing_over.discard(partition)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._tasks.get(task.get_name()) is task:
            del self._tasks[task.get_name()]
        if not task.cancelled() and (error := task.exception()):
            self.world.errors.append(error)

    def _hand_over_soon(self, partition: str) -> None:
        if partition not in self._handing_over:
            self._start(f"over {partition}", self._hand_over(partition))

    # The runtime ------------------------------------------------------------------------------

    async def _work(self, partition: str, fence: int) -> None:
        self._epoch += 1
        assignment = Assignment(Partition(STREAM, partition), self._epoch, fence)
        position = await self._claim(assignment)
        if position is None:
            self.world.ledger.counts["refused"] += 1
            await self._release(partition, fence)
            return
        tenure = Tenure(partition, fence, position, is_late=not self.is_running)
        self.world.ledger.begin(tenure)
        self.tenures[partition] = tenure
        await self._process(tenure, assignment)

    async def _claim(self, assignment: Assignment) -> int | None:
        while True:
            with suppress(StoreError):
                text = (await self.store.claim(GROUP, [assignment]))[assignment]
                return None if isinstance(text, Outcome) else int(text or 0)
            await self._sleep(0.2)

    async def _process(self, tenure: Tenure, assignment: Assignment) -> None:
        size = self.world.ledger.sizes[tenure.partition]
        while tenure.partition not in self._handing_over:
            if tenure.position < size:
                self.world.ledger.process(tenure)
            await self._sleep(self._chance.uniform(0.01, 0.8))
            is_at_end = tenure.position == size and self.world.is_closed(tenure.partition)
            if is_at_end or self._chance.random() < 0.5:
                saved = await self._save(tenure, assignment)
                if saved is OutcomeKind.FENCED:
                    self.world.ledger.counts["refused"] += 1
                    break
                if is_at_end and saved is OutcomeKind.DURABLE:
                    await self._end(tenure, is_ended=True)
                    return
        if tenure.partition in self._handing_over:
            await self._drain(tenure, assignment)

    async def _save(self, tenure: Tenure, assignment: Assignment) -> OutcomeKind:
        item = StoreItem(assignment, str(tenure.position))
        (outcome,) = await self.store.save(GROUP, [item])
        return outcome.kind

    async def _hand_over(self, partition: str) -> None:
        self._handing_over.add(partition)
        if task := self._tasks.get(partition):
            await asyncio.wait([task])

    async def _drain(self, tenure: Tenure, assignment: Assignment) -> None:
        while (saved := await self._save(tenure, assignment)) is OutcomeKind.RETRY:
            await self._sleep(0.2)
        if saved is OutcomeKind.DURABLE:
            await self._end(tenure)

    async def _end(self, tenure: Tenure, *, is_ended: bool = False) -> None:
        self.tenures.pop(tenure.partition, None)
        tenure.is_open, tenure.is_handed_over = False, True
        self.world.ledger.counts["handed over"] += not is_ended
        await self._release(tenure.partition, tenure.fence, is_ended=is_ended)

    async def _release(self, partition: str, fence: int, *, is_ended: bool = False) -> None:
        self._handing_over.discard(partition)
        with suppress(TransientStoreError):
            await self.leases.release({partition: fence}, ended=is_ended)

    async def _running(self) -> None:
        """A process that is stopped does not even time out."""
        is_cancelled = False
        while not self._may_run.is_set():
            try:
                await self._may_run.wait()
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            raise asyncio.CancelledError

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._running()
