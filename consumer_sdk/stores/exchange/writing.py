"""How an import writes: what it claims is compared once more, and saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import FencedError, StoreError, TransientStoreError
from consumer_sdk.leases.member import ended_partitions, reopen
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores.exchange.checking import batches
from consumer_sdk.stores.exchange.lines import Entry
from consumer_sdk.stores.exchange.verdicts import Judge

__all__ = ["Writing"]

ROUNDS = 5
"""How often a partition is claimed that somebody else claims at the same time."""


class Writing:
    """Writes entries that were checked.

    Attributes:
        written: entries that are durable, and were not there before.
    """

    def __init__(self, store: CheckpointStore, judge: Judge) -> None:
        self._store = store
        self._judge = judge
        self._saved: set[Partition] = set()
        self.written = 0

    async def run(self, entries: Iterable[Entry]) -> None:
        """Writes what is not there yet.

        Raises:
            StoreError: says how many were written; they stay.
        """
        for group, batch in batches(entries):
            await self._pin(group, [e for e in batch if e.id is None])
            checkpoints = [e for e in batch if e.id is not None]
            await self._write(group, checkpoints)
            await self._reopen(group, checkpoints)
            self._judge.raise_refusals(self._outcome)

    @property
    def _outcome(self) -> str:
        return f"{self.written} were written, and stay"

    async def _pin(self, group: str, entries: Sequence[Entry]) -> None:
        before = await self._store.pins(group) if entries else {}
        for entry in entries:
            stored = await self._store.pin(group, entry.stream, entry.text)
            self._judge.check_pin(entry, stored)
            self.written += stored == entry.text and entry.stream not in before

    async def _reopen(self, group: str, entries: Sequence[Entry]) -> None:
        """A lease that has ended is of the checkpoint of before.

        What is kept was perhaps written by an import that was killed before it came to this.
        """
        unended = [e.partition for e in entries if not self._judge.is_ended(e)]
        streams = {partition.stream for partition in unended}
        suspects = self._saved | await ended_partitions(self._store, group, streams)
        await reopen(self._store, group, [p for p in unended if p in suspects])

    async def _write(self, group: str, entries: Sequence[Entry]) -> None:
        left = entries
        for _ in range(ROUNDS):
            stored = await self._store.peek(group, [e.partition for e in left])
            left = [e for e in left if self._judge.is_written(e, stored[e.partition])]
            if not left:
                return
            left = await self._claim_and_save(group, left)
        if left:
            raise FencedError(
                f"{self._outcome}. {left[0]} was claimed by somebody else each time that the "
                f"import had claimed it: stop the group's consumers, and import again"
            )

    async def _claim_and_save(self, group: str, entries: Sequence[Entry]) -> list[Entry]:
        """Those that somebody else has claimed in between."""
        claims = {Assignment(e.partition, number): e for number, e in enumerate(entries)}
        self._saved.update(e.partition for e in entries)
        try:
            stored = await self._store.claim(group, list(claims))
            items = self._items(claims, stored)
            outcomes = await self._store.save(group, items)
        finally:
            await self._store.forget(list(claims))
        self.written += sum(outcome.kind is OutcomeKind.DURABLE for outcome in outcomes)
        saved = zip([claims[item.assignment] for item in items], outcomes, strict=True)
        refused = [claims[a] for a, text in stored.items() if isinstance(text, Outcome)]
        return refused + [entry for entry, outcome in saved if self._is_fenced(entry, outcome)]

    def _items(
        self,
        claims: Mapping[Assignment, Entry],
        stored: Mapping[Assignment, str | Outcome | None],
    ) -> list[StoreItem]:
        texts = {a: text for a, text in stored.items() if not isinstance(text, Outcome)}
        return [
            StoreItem(a, claims[a].text)
            for a, text in texts.items()
            if self._judge.is_written(claims[a], text)
        ]

    def _is_fenced(self, entry: Entry, outcome: Outcome) -> bool:
        if outcome.kind is OutcomeKind.RETRY:
            is_passing = isinstance(outcome.error, TransientStoreError)
            raise (TransientStoreError if is_passing else StoreError)(
                f"{self._outcome}. {entry}: {outcome.error}: import again"
            ) from outcome.error
        return outcome.kind is not OutcomeKind.DURABLE
