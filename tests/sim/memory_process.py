"""A process whose broker is the in-memory one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from consumer_sdk.abc import CheckpointStore
from tests.sim.fakes import SimStore, WatchedAdapter
from tests.sim.plan import Life, Plan
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["GROUP", "STREAM", "MemoryProcess"]

STREAM, GROUP = "stream", "group"


def _adapter_options(plan: Plan) -> dict[str, Any]:
    if plan.subscribing is None:
        return {"metadata_size": plan.metadata_size}
    return {
        "subscription": plan.subscribing.kind,
        "prefetch": plan.subscribing.prefetch,
        "batch_index_acks": plan.subscribing.keeps_indexes,
    }


class MemoryProcess(Process):
    """A consumer of the in-memory broker with its user."""

    def __init__(
        self, world: World, name: str, life: Life, chance: random.Random, *, is_new: bool
    ) -> None:
        self._memory = world
        super().__init__(world, name, life, chance, is_new=is_new)

    def _make_adapter(self) -> WatchedAdapter:
        world = self._memory
        return WatchedAdapter(
            world.broker,
            STREAM,
            group=GROUP,
            faults=self.faults,
            process=self.name,
            ledger=world.ledger,
            **_adapter_options(world.plan),
        )

    def _make_store(self) -> CheckpointStore | None:
        return SimStore(self._memory.shared, self.faults) if self._plan.has_store else None

    def _crash(self) -> None:
        self.adapter.crash()
