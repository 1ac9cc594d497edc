"""Whether an entry may be written over what is stored. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError, StoreError
from consumer_sdk.records import Checkpoint, Comparison, Position
from consumer_sdk.stores.exchange.lines import Entry
from consumer_sdk.trackers import decode_checkpoint

__all__ = ["ImportRefusedError", "Judge", "Readers", "broker_of"]

Readers = Mapping[str, Callable[[str], Position]]
"""Broker → what reads a position's text."""

SHOWN = 10
"""Refusals that an error quotes."""

REASONS = {
    Comparison.BEHIND: "the store is ahead of it",
    Comparison.DIVERGED: "it has settled records that the store has not, and the other way round",
}


class ImportRefusedError(StoreError):
    """An import would overwrite a later checkpoint of the store; ``force=True`` allows that.

    Cause:
        the store is ahead of what would be imported, or both have settled what the other has
        not. The commands also raise it while the group's consumers, or the holder of a lease,
        seem to live.

    What to do:
        stop the group's consumers. If what would be imported is wanted all the same, give
        ``force=True``, or ``--force`` on the command line.
    """


class Judge:
    """Says of each entry whether it is written, and keeps the reasons where it may not be.

    Args:
        readers: for the brokers whose checkpoints can be compared.
        force: nothing is refused.
    """

    def __init__(self, readers: Readers, *, force: bool) -> None:
        self.force = force
        self._readers = readers
        self._reasons: list[str] = []
        self._count = 0

    def check(self, entry: Entry) -> None:
        """Sees that an entry is a checkpoint of its partition, which can be compared.

        Raises:
            CheckpointFormatError: it is none, or its broker has no reader.
            CheckpointMismatchError: it belongs to another partition.
        """
        try:
            self._read(entry, entry.text)
        except (CheckpointFormatError, CheckpointMismatchError) as error:
            raise type(error)(f"{entry}: {error}") from error

    def is_ended(self, entry: Entry) -> bool:
        """Whether an entry, which was checked, is the checkpoint of a partition that has ended."""
        return self._read(entry, entry.text).ended

    def is_written(self, entry: Entry, stored: str | None) -> bool:
        """Whether an entry's checkpoint is to be written over the one that is stored.

        ==================================  ================================================
        nothing is stored                   written
        the same text                       kept
        it settles all that is settled      written
        both settle the same, same start    kept: the store's identity and attempts are newer
        its start would skip records        refused; written with ``force``
        the store settles what it does not  refused; written with ``force``
        another application started anew    refused; written with ``force``
        they cannot be compared             refused; written with ``force``
        ==================================  ================================================
        """
        if stored is None or stored == entry.text or self.force:
            return stored != entry.text
        try:
            return self._is_ahead(entry, stored)
        except (CheckpointFormatError, CheckpointMismatchError, TypeError) as error:
            return self.refuse(entry, f"it cannot be compared with what is stored: {error}")

    def _is_ahead(self, entry: Entry, stored: str) -> bool:
        mine, theirs = self._read(entry, entry.text), self._read(entry, stored)
        if theirs.application not in {None, mine.application}:
            return self.refuse(entry, f"application {theirs.application!r} has started anew there")
        comparison = mine.compare(theirs)
        if reason := REASONS.get(comparison):
            return self.refuse(entry, reason)
        # A start that was pinned settles nothing, and yet says which records are wanted.
        if _skips(mine, theirs) or (comparison is Comparison.EQUAL and mine.start != theirs.start):
            return self.refuse(
                entry,
                f"it starts at {mine.start!r}, the store at {theirs.start!r}: see which is right",
            )
        return comparison is Comparison.AHEAD

    def _read(self, entry: Entry, text: str) -> Checkpoint:
        broker = broker_of(entry.text)
        if broker not in self._readers:
            raise CheckpointFormatError(
                f"the positions of broker {broker!r:.80} are not known here: import it with "
                f"readers={{{broker!r:.80}: its adapter's decode_position}}"
            )
        return decode_checkpoint(
            text,
            broker=broker,
            partition=entry.partition,
            identity=None,
            decode_position=self._readers[broker],
        )

    def check_pin(self, entry: Entry, stored: str) -> None:
        """A group's start is pinned once: another one is refused, and with ``force`` left out."""
        if stored != entry.text and not self.force:
            self.refuse(entry, f"{stored!r:.200} is pinned, and stays: leave this one out")

    def refuse(self, entry: Entry, reason: str) -> bool:
        """Notes that an entry may not be written; it is not, so False."""
        self._count += 1
        if len(self._reasons) < SHOWN:
            self._reasons.append(f"{entry}: {reason}")
        return False

    def raise_refusals(self, outcome: str) -> None:
        """Ends the import if something was refused.

        Raises:
            ImportRefusedError: says what was, and the ``outcome``.
        """
        if self._count:
            more = self._count - len(self._reasons)
            shown = "; ".join(self._reasons) + (f"; and {more} more" if more else "")
            raise ImportRefusedError(
                f"{outcome}: {shown}. What is refused is for force to overwrite"
            )


def _skips(mine: Checkpoint, theirs: Checkpoint) -> bool:
    """Records that the store wants are below the start, and none of the settled prefix."""
    if mine.ended or mine.start is None or theirs.start is None or mine.start <= theirs.start:
        return False
    return mine.watermark is None or bool(mine.watermark < theirs.start)


def broker_of(text: str) -> str:
    """The broker that a checkpoint's text names.

    Raises:
        CheckpointFormatError: it is no checkpoint.
    """
    try:
        broker = json.loads(text)["broker"]
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointFormatError(f"not a checkpoint: {text[:80]!r}") from error
    if not isinstance(broker, str):
        raise CheckpointFormatError(f"not a checkpoint: its broker is {broker!r:.80}")
    return broker
