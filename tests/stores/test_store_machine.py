"""Random histories of several owners on one store, against a ten-line model."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore, MemoryStore, ZooKeeperStore
from tests.stores.fake_zookeeper import FakeZooKeeper, connect, store_on

PARTITIONS = [Partition("orders", str(number)) for number in range(2)]
OWNERS = st.integers(0, 2)
IDS = st.integers(0, len(PARTITIONS) - 1)
FENCES = st.none() | st.integers(1, 3)


@dataclass
class Model:
    """One partition: who may write, the largest fence seen, and the text."""

    owner: Assignment | None = None
    fence: int | None = None
    text: str | None = None

    def claim(self, assignment: Assignment) -> bool:
        """Whether the claim is granted."""
        if None not in (self.fence, assignment.fence) and assignment.fence < self.fence:  # type: ignore[operator] # None is ruled out
            return False
        self.owner = assignment
        self.fence = self.fence if assignment.fence is None else assignment.fence
        return True


class StoreMachine(RuleBasedStateMachine):
    """Three owners, each with a store of its own on one state, and two partitions."""

    stores: list[CheckpointStore]

    def make_stores(self) -> list[CheckpointStore]:
        """One for each owner."""
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        """Nothing is stored yet."""
        self.runner = asyncio.Runner()
        self.stores = self.make_stores()
        self.models = [Model() for _ in PARTITIONS]
        self.grants: dict[tuple[int, int], Assignment] = {}
        self.count = 0
        for store in self.stores:
            self.runner.run(store.open())

    @rule(owner=OWNERS, ids=st.lists(IDS, min_size=1, max_size=3), fence=FENCES)
    def claim(self, owner: int, ids: list[int], fence: int | None) -> None:
        """An owner claims partitions, some perhaps twice: the later one counts."""
        self.count += 1
        grants = [Assignment(PARTITIONS[id_], self.count, fence) for id_ in ids]
        answer = self.runner.run(self.stores[owner].claim("g", grants))
        for id_, grant in zip(ids, grants, strict=True):
            model = self.models[id_]
            if model.claim(grant):
                assert answer[grant] == model.text
            else:
                assert kind(answer[grant]) is OutcomeKind.FENCED
            self.grants[owner, id_] = grant

    @rule(owner=OWNERS, ids=st.lists(IDS, min_size=1, max_size=3))
    def save(self, owner: int, ids: list[int]) -> None:
        """An owner saves what it last asked for, whether it still has it or not."""
        items = []
        for id_ in ids:
            grant = self.grants.get((owner, id_)) or Assignment(PARTITIONS[id_], 0)
            self.count += 1
            items.append(StoreItem(grant, f"text {self.count}"))
        outcomes = self.runner.run(self.stores[owner].save("g", items))
        for id_, item, outcome in zip(ids, items, outcomes, strict=True):
            if self.models[id_].owner is item.assignment:
                assert outcome.kind is OutcomeKind.DURABLE
                self.models[id_].text = item.text
            else:
                assert outcome.kind is OutcomeKind.FENCED

    @rule(owner=OWNERS, id_=IDS)
    def delete(self, owner: int, id_: int) -> None:
        """Somebody deletes a checkpoint: nobody owns it, and its fence stays."""
        self.runner.run(self.stores[owner].delete("g", [PARTITIONS[id_]]))
        self.models[id_].owner = self.models[id_].text = None

    @rule(owner=OWNERS, id_=IDS)
    def forget(self, owner: int, id_: int) -> None:
        """An owner gives up without a word to anybody."""
        if grant := self.grants.get((owner, id_)):
            self.runner.run(self.stores[owner].forget([grant]))
            if self.models[id_].owner is grant:
                self.models[id_].owner = None

    @rule(owner=OWNERS)
    def restart(self, owner: int) -> None:
        """An owner closes its store and opens it again; its claims may live on."""
        self.runner.run(self.stores[owner].aclose())
        self.runner.run(self.stores[owner].open())

    @invariant()
    def everybody_reads_the_model(self) -> None:
        """What peek and list say is what the model says."""
        for store in getattr(self, "stores", [])[:1]:
            texts = self.runner.run(store.peek("g", PARTITIONS))
            assert list(texts.values()) == [model.text for model in self.models]
            listed = {p for p, m in zip(PARTITIONS, self.models, strict=True) if m.text is not None}
            assert set(self.runner.run(store.list("g"))) == listed

    def teardown(self) -> None:
        """Closes what was opened."""
        for store in getattr(self, "stores", []):
            self.runner.run(store.aclose())
        if hasattr(self, "runner"):
            self.runner.close()


def kind(answer: Any) -> OutcomeKind | None:
    """The kind of an outcome."""
    return answer.kind if isinstance(answer, Outcome) else None


class MemoryMachine(StoreMachine):
    """Three handles on one memory."""

    def make_stores(self) -> list[CheckpointStore]:
        """One for each owner."""
        first = MemoryStore()
        return [first, first.handle(), first.handle()]


class LocalMachine(StoreMachine):
    """Three objects on one file."""

    def make_stores(self) -> list[CheckpointStore]:
        """One for each owner."""
        self.folder = tempfile.TemporaryDirectory()
        return [LocalStore(Path(self.folder.name) / "state.db") for _ in range(3)]

    def teardown(self) -> None:
        """Closes what was opened, and deletes the file."""
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


class ZooKeeperMachine(StoreMachine):
    """Three sessions on one tree."""

    def make_stores(self) -> list[CheckpointStore]:
        """One for each owner."""
        self.server = FakeZooKeeper()
        return [store_on(self.server) for _ in range(3)]

    @rule(owner=OWNERS)
    def restart(self, owner: int) -> None:
        """An owner has a new session; its claims live on."""
        store = self.stores[owner]
        assert isinstance(store, ZooKeeperStore)
        self.runner.run(store.aclose())
        connect(store, self.server)


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

TestZooKeeperMachine = ZooKeeperMachine.TestCase
TestZooKeeperMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

TestLocalMachine = LocalMachine.TestCase
TestLocalMachine.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,  # a disk takes the time it takes
    suppress_health_check=[HealthCheck.too_slow],
)
