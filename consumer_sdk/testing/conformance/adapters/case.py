"""What the adapter cases share."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any, ClassVar

import pytest

from consumer_sdk.records import Start, StartPoint
from consumer_sdk.testing.conformance.adapters.harness import (
    Ability,
    AdapterHarness,
    Journal,
    Member,
    RecordingOwner,
    open_member,
)

__all__ = ["AdapterCase"]

_NUMBERS = count(1)


class AdapterCase:
    """Gives the cases a broker, a journal, and members by name.

    Attributes:
        start: where owners start, unless a case says otherwise.
    """

    pytestmark = pytest.mark.asyncio
    start: ClassVar[Start] = StartPoint.EARLIEST

    broker: AdapterHarness
    journal: Journal
    group: str

    @pytest.fixture(autouse=True)
    def _prepare(self, harness: AdapterHarness) -> None:
        self.broker = harness
        self.journal = Journal(harness.patience)
        self.group = self.new_group()
        self._names = count(1)

    def new_group(self) -> str:
        """A group that nobody has used."""
        return f"conformance-{next(_NUMBERS)}"

    def needs(self, ability: Ability) -> None:
        """Skips the case where the harness cannot do what it needs."""
        if ability not in self.broker.abilities:
            pytest.skip(f"the harness has no way to {ability}")

    def owner(self) -> RecordingOwner:
        """An owner that writes into this case's journal; the first is ``member-1``."""
        return RecordingOwner(f"member-{next(self._names)}", self.journal, self.start)

    def member(
        self,
        stream: str,
        *,
        owner: RecordingOwner | None = None,
        group: str | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[Member]:
        """An open member of the case's group."""
        adapter = self.broker.make_adapter(stream, group or self.group, **options)
        return open_member(self.broker, owner or self.owner(), adapter)

    async def until_event(self, kind: str, member: str | None = None, times: int = 1) -> None:
        """Waits until the journal has so many events of a kind."""
        await self.journal.until(
            lambda: len(self.journal.of(kind, member)) >= times, f"{kind} of {member}"
        )
