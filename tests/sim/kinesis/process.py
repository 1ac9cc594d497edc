"""A process that reads Kinesis."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorExpiredError,
    SubscriptionBusyError,
    ThrottledError,
)
from consumer_sdk.errors import TransientAdapterError, TransientStoreError
from consumer_sdk.runtime.dispatch.loop_watch import GAP
from consumer_sdk.testing import Faults
from tests.sim.kinesis.freezing import PROCESS
from tests.sim.kinesis.watching import StoreWatch, WatchedAdapter, WatchedService
from tests.sim.plan import Life
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.kinesis.scene import KinesisScene

__all__ = ["KinesisProcess"]

REFUSALS: dict[str, tuple[type[TransientAdapterError], ...]] = {
    "records": (ThrottledError, IteratorExpiredError, TransientAdapterError),
    "iterator": (ThrottledError, TransientAdapterError),
    "subscribe": (SubscriptionBusyError, ThrottledError, TransientAdapterError),
    "event": (ThrottledError, SubscriptionBusyError, TransientAdapterError),
}
"""What a seam fails with; any other with `TransientAdapterError`."""


class KinesisProcess(Process):
    """A consumer of the fake Kinesis with its user.

    Attributes:
        frozen: seconds for which it was, or will be, stopped.
        awake_since: when it joined, went on after it was stopped, or was killed; -infinite before.
    """

    adapter: WatchedAdapter

    def __init__(self, world: KinesisScene, name: str, life: Life, chance: random.Random) -> None:
        self._scene = world
        self.frozen = 0.0
        self.awake_since = -math.inf
        super().__init__(world, name, life, chance)

    def _make_faults(self) -> Faults:
        return Faults(
            self._chance,
            self._plan.rates,
            until=self._plan.faults_end,
            error=self._refusal,
            trace=self._world.trace,
        )

    def _refusal(self, seam: str) -> Exception:
        kind = self._chance.choice(REFUSALS.get(seam, (TransientAdapterError,)))
        return kind(f"injected fault at {seam!r}")

    def _make_adapter(self) -> WatchedAdapter:
        scene, ledger = self._scene, self._scene.shards
        self._watch = StoreWatch(self.name, self.faults, scene.observer, ledger)
        self.service = WatchedService(scene.kinesis, self.faults, ledger, scene.clock.monotonic)
        return WatchedAdapter(
            scene.drawn,
            self.name,
            self.service,
            self._watch,
            ledger=ledger,
            opened=self.woken,
            size=scene.size_of(self.name),
        )

    def _make_store(self) -> CheckpointStore:
        return self._scene.store.handle(faults=self._watch)

    # -- life and death -----------------------------------------------------------------

    async def _live(self) -> None:
        _ = PROCESS.set(self.name)
        try:
            await super()._live()
        except (TransientAdapterError, TransientStoreError) as error:
            if self.adapter.is_open:
                raise
            self._world.trace(f"{self.name} could not open: {error}")

    async def _work(self) -> None:
        """Some of it takes so long that iterators expire."""
        if self._scene.drawn.is_long and not self._world.is_quiet and self._chance.random() < 0.1:
            await asyncio.sleep(self._chance.uniform(300, 400))
        await super()._work()

    @property
    def is_at_work(self) -> bool:
        """It has joined, and has neither ended nor begun to."""
        return self.adapter.is_open and not (self.is_over or self.is_leaving)

    @property
    def has_room(self) -> bool:
        """It may have another shard."""
        member, most = self.adapter.member, self.adapter.most
        return member is None or most is None or len(self._scene.shards.owned_by(member)) < most

    @property
    def is_over(self) -> bool:
        """It was killed, or has closed."""
        return self.faults.is_dead or self.task.done()

    @property
    def is_leaving(self) -> bool:
        """It closes."""
        return self._is_ending and not self.is_over

    def freeze(self, seconds: float) -> None:
        """Stops it for a while."""
        self.frozen += seconds
        goes_on = self._world.clock.monotonic() + seconds
        self.awake_since = max(self.awake_since, goes_on)  # another stop may last longer
        self._scene.freezer.freeze(self.name)
        asyncio.get_running_loop().call_later(seconds, self._thaw)

    def _thaw(self) -> None:
        if self._scene.freezer.thaw(self.name) > GAP:
            self._scene.shards.woken(self.name)

    def woken(self) -> None:
        """It has just joined, or was killed."""
        self.awake_since = self._world.clock.monotonic()

    def _crash(self) -> None:
        self.adapter.crash()
        self.woken()
        if self.adapter.member is not None:
            self._scene.lost(self.name, self.adapter.member)

    def _closing_limit(self) -> float:
        if self.faults.is_dead:
            return math.inf
        return super()._closing_limit() + self.frozen

    async def _ended(self) -> None:
        """What a killed process still does is of no interest, and takes its time."""
        if not self.faults.is_dead:
            await super()._ended()
