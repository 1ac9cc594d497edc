"""What the store suite needs of a store, and what its cases share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import ClassVar, Literal

import pytest
import pytest_asyncio

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition

__all__ = ["DURABLE", "FENCED", "RETRY", "Ability", "StoreCase", "StoreHarness"]

Ability = Literal["lose_reply", "outage"]

DURABLE, FENCED, RETRY = OutcomeKind.DURABLE, OutcomeKind.FENCED, OutcomeKind.RETRY


class StoreHarness(ABC):
    """A place for checkpoints, empty for each test.

    Attributes:
        abilities: what the harness can do beyond `make_store`; cases that need another
            ability are skipped.
    """

    abilities: ClassVar[frozenset[Ability]] = frozenset()

    @abstractmethod
    def make_store(self) -> CheckpointStore:
        """A handle that is not open yet.

        All handles see the same checkpoints, as the stores of different processes would.
        """

    def outage(self, store: CheckpointStore) -> AbstractAsyncContextManager[None]:
        """Ability ``"outage"``: inside it no claim or save of ``store`` can succeed."""
        raise NotImplementedError

    def lose_reply(self, store: CheckpointStore) -> None:
        """Ability ``"lose_reply"``: the next save of ``store`` is applied, and its reply lost."""
        raise NotImplementedError


class StoreCase:
    """Gives the cases two open handles on one state: ``mine`` and ``theirs``."""

    pytestmark = pytest.mark.asyncio

    group: ClassVar[str] = "conformance"

    @pytest.fixture(autouse=True)
    def _prepare(self, harness: StoreHarness) -> None:
        self.place = harness
        self._epochs = count(1)

    @pytest_asyncio.fixture
    async def mine(self, harness: StoreHarness) -> AsyncIterator[CheckpointStore]:
        """An open store."""
        store = harness.make_store()
        await store.open()
        yield store
        await store.aclose()

    @pytest_asyncio.fixture
    async def theirs(self, harness: StoreHarness) -> AsyncIterator[CheckpointStore]:
        """Another process's store of the same state."""
        store = harness.make_store()
        await store.open()
        yield store
        await store.aclose()

    def needs(self, ability: Ability) -> None:
        """Skips the case where the harness cannot do what it needs."""
        if ability not in self.place.abilities:
            pytest.skip(f"the harness has no way to {ability}")

    def grant(
        self, id_: str = "0", *, stream: str = "orders", fence: int | None = None
    ) -> Assignment:
        """A new assignment, of a new epoch."""
        return Assignment(Partition(stream, id_), next(self._epochs), fence)

    async def claimed(
        self, store: CheckpointStore, id_: str = "0", *, fence: int | None = None
    ) -> Assignment:
        """A new assignment that ``store`` has claimed."""
        assignment = self.grant(id_, fence=fence)
        answer = await store.claim(self.group, [assignment])
        assert not isinstance(answer[assignment], Outcome)
        return assignment

    async def refused(self, store: CheckpointStore, *, fence: int | None) -> bool:
        """Whether a claim of partition 0 with this fence is FENCED."""
        assignment = self.grant(fence=fence)
        outcome = (await store.claim(self.group, [assignment]))[assignment]
        return isinstance(outcome, Outcome) and outcome.kind is FENCED

    async def save(
        self, store: CheckpointStore, *pairs: tuple[Assignment, str]
    ) -> Sequence[OutcomeKind]:
        """Saves texts; returns the kinds of the outcomes."""
        items = [StoreItem(assignment, text) for assignment, text in pairs]
        return [outcome.kind for outcome in await store.save(self.group, items)]

    async def stored(self, store: CheckpointStore, id_: str = "0") -> str | None:
        """The text that is stored for a partition."""
        partition = Partition("orders", id_)
        return (await store.peek(self.group, [partition]))[partition]
