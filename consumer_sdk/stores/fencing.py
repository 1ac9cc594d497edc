"""Who may write a checkpoint: the rules that all stores share, without any I/O.

A stored checkpoint carries a stamp: (writer, fence, serial).

- A *claim* writes a new, unique writer into the stamp, unless a newer fence is stored. The stored
  fence never decreases. So a claim without a fence takes the partition over, and owners with an
  older fence still cannot claim it.
- A *save* is written only while the stamp still has its claim's writer, and only over an older
  serial. So a save whose reply was lost is recognised by reading the stamp back, a save that
  arrives late cannot overwrite a newer one, and a save after another claim writes nothing.
- A deleted checkpoint keeps its stamp, with the writer `NOBODY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import CheckpointFormatError, FencedError, StoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition

__all__ = [
    "NOBODY",
    "Claims",
    "Stamp",
    "Write",
    "judge",
    "not_held",
    "overwritten",
    "refused",
    "take",
]

NOBODY = ""
"""The writer of a deleted checkpoint; no claim has it."""


class Stamp(NamedTuple):
    """What a stored checkpoint says of its writer."""

    writer: str
    fence: int | None
    serial: int


class Write(NamedTuple):
    """One assignment's part of a save."""

    assignment: Assignment
    text: str
    stamp: Stamp

    @property
    def partition(self) -> Partition:
        """Where it is written to."""
        return self.assignment.partition


def take(stored: Stamp | None, fence: int | None, writer: str) -> Stamp | None:
    """The stamp that a claim leaves behind, or None where a newer fence is stored.

    An equal fence is granted: a claim whose reply was lost is repeated, and a seek makes a new
    assignment under the same lease.
    """
    if stored is None or stored.fence is None:
        return Stamp(writer, fence, 0)
    if fence is not None and fence < stored.fence:
        return None
    return Stamp(writer, stored.fence if fence is None else fence, 0)


def judge(stored: Stamp | None, mine: Stamp) -> Outcome | None:
    """What the stored stamp says of a save: durable, fenced, or None: it is to be written."""
    if stored is None or stored.writer != mine.writer:
        return refused(stored)
    return Outcome.durable() if stored.serial >= mine.serial else None


def refused(stored: Stamp | None) -> Outcome:
    """A FENCED outcome that names the owner."""
    owner = "nobody: it was deleted" if stored is None or not stored.writer else stored.writer
    fence = None if stored is None else stored.fence
    error = FencedError(f"another claim has replaced this one; owner: {owner}, fence: {fence}")
    return Outcome(OutcomeKind.FENCED, error=error)


def overwritten(error: CheckpointFormatError) -> Outcome:
    """A FENCED outcome: somebody has written over the claim what no store writes.

    The next claim raises the error, so that the consumer does not start there.
    """
    fenced = FencedError(f"another program has taken over: {error}")
    return Outcome(OutcomeKind.FENCED, error=fenced)


def not_held() -> Outcome:
    """A FENCED outcome for what was never claimed, or is forgotten."""
    return Outcome(OutcomeKind.FENCED, error=FencedError("this claim is not held here"))


UNKNOWN: tuple[str, None] = ("", None)


class Claims:
    """What one store object remembers of its own claims."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Assignment, tuple[str, Stamp]] = {}

    def remember(self, group: str, assignment: Assignment, stamp: Stamp) -> None:
        """The claim was granted in this group, with this stamp."""
        self._held[assignment] = group, stamp

    def forget(self, assignments: Iterable[Assignment]) -> None:
        """A later save of these is FENCED."""
        for assignment in assignments:
            self._held.pop(assignment, None)

    def plan(self, group: str, items: Sequence[StoreItem], max_size: int) -> list[Write | Outcome]:
        """For each item the write to be tried, with a serial of its own, or why there is none."""
        return [self._plan(group, item, max_size) for item in items]

    def _plan(self, group: str, item: StoreItem, max_size: int) -> Write | Outcome:
        claimed_in, stamp = self._held.get(item.assignment, UNKNOWN)
        if stamp is None or claimed_in != group:
            return not_held()
        if (size := _size(item.text)) > max_size:
            return Outcome.retry(_oversize(item, size, max_size))
        mine = Stamp(stamp.writer, stamp.fence, stamp.serial + 1)
        self._held[item.assignment] = group, mine
        return Write(item.assignment, item.text, mine)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _oversize(item: StoreItem, size: int, max_size: int) -> StoreError:
    return StoreError(
        f"the checkpoint of {item.assignment.partition} has {size} bytes, the store takes "
        f"{max_size}: lower max_holes, or settle the records that hold its watermark back"
    )
