"""What is known when an assignment starts, and what was decided on it: values alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from consumer_sdk.records import (
    Assignment,
    AtPosition,
    AtTime,
    Checkpoint,
    Committed,
    Position,
    Start,
    StartPoint,
)
from consumer_sdk.runtime.options import Options

__all__ = ["Decision", "StartInputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInputs:
    """What is known when an assignment starts.

    Attributes:
        assignment: what starts.
        stored: the store's checkpoint; None for none.
        committed: the broker's idea of where the group is; None for none.
        resolved: the position that ``start`` stands for, where it moves: the group's, if there
            is a store; None where the broker cannot say.
        since: the same as a time, of a broker that knows no ends.
        is_later: the partition is newer than the group's first start.
        earliest: the first position that the broker stores; None where it cannot say.
        latest: the next position that it will write.
        replacement: the position that ``out_of_range`` stands for, where that is a time.
        redelivers: the broker redelivers what it has not heard of: a seek would make it forget
            what was settled above a hole.
        is_resumed: the user has said that it is to be fetched, whatever its lag.
    """

    assignment: Assignment
    stored: Checkpoint | None = None
    committed: Committed | None = None
    resolved: Position | None = None
    since: AtTime | None = None
    is_later: bool = False
    earliest: Position | None = None
    latest: Position | None = None
    replacement: Position | None = None
    redelivers: bool = False
    is_resumed: bool = False

    @property
    def known(self) -> Checkpoint | None:
        """The store's checkpoint, else the broker's."""
        if self.stored is not None:
            return self.stored
        return None if self.committed is None else self.committed.checkpoint

    @property
    def is_foreign(self) -> bool:
        """Another program has written the broker's position."""
        return self.committed is not None and self.committed.is_foreign

    @property
    def is_unmarked(self) -> bool:
        """The broker's position was written by whoever does not know of the store."""
        found = self.committed
        return found is not None and (found.is_foreign or not found.is_copy)

    @property
    def reset(self) -> Checkpoint | None:
        """What was written without the store's knowledge, where that is not what the store has.

        Nothing but what is equal is no reset: it was honoured just before a crash. Where the store
        has settled anything from its start on, they differ. A broker that redelivers has its
        cursor behind the store's: there it has to be told from that.
        """
        stored, committed = self.stored, self.committed
        is_set = self.is_foreign if self.redelivers else self.is_unmarked
        if stored is None or committed is None or not is_set:
            return None
        found = committed.checkpoint
        return None if _extent(found) == _extent(stored) else found

    def after(self, reset: Decision) -> StartInputs:
        """The same, once a reset was honoured."""
        committed = Committed(reset.checkpoint)
        return replace(self, stored=reset.checkpoint, committed=committed)

    @property
    def keeps_cursor(self) -> bool:
        """The broker's own cursor knows best: it redelivers, and no store knows more."""
        return self.redelivers and self.stored is None and self.committed is not None

    def is_new_application(self, options: Options) -> bool:
        """What is known was written by another application, and this one is to start anew.

        Whoever moved the broker's position had the last word: where that has erased the record,
        nobody can tell whether this application had started anew before.
        """
        if options.restart != "from_start" or self.known is None or self.reset is not None:
            return False
        found = self.committed
        is_mute = (
            self.stored is None and found is not None and (found.is_foreign or found.is_partial)
        )
        return not is_mute and self.known.application != options.application_id

    def needs_start(self, options: Options) -> bool:
        """``start`` decides, so that it has to be resolved where it moves."""
        if self.assignment.discovered:
            return False
        known = self.known
        is_unknown = known is None or (known.start is None and not known.ended)
        return self.is_new_application(options) or (is_unknown and not self.keeps_cursor)


def _extent(
    checkpoint: Checkpoint,
) -> tuple[Position | None, bool, Sequence[object], set[Position]]:
    start = checkpoint.start
    is_ahead = start is not None and checkpoint.is_settled(start)
    return start, is_ahead, checkpoint.ranges, set(checkpoint.attempts)


@dataclass(frozen=True, slots=True)
class Decision:
    """Where to start, and what the tracker is restored from.

    Attributes:
        start: what the adapter seeks to.
        checkpoint: what the tracker restores.
        is_pin: it was decided just now what may be decided otherwise later, so that it must be
            durable before the first record is handed out.
        is_reset: another program's position was honoured.
        is_behind: it is farther behind the end than it may be.
        lost: unsettled positions that are skipped; 1 for a loss that cannot be counted.
        reasons: what happened, to be logged.
    """

    start: Start
    checkpoint: Checkpoint = Checkpoint()  # noqa: RUF009 - frozen
    is_pin: bool = False
    is_reset: bool = False
    is_behind: bool = False
    lost: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def position(self) -> Position | None:
        """Where it starts; None where the adapter finds that out."""
        if self.start is StartPoint.BROKER:
            return self.checkpoint.start
        return self.start.position if isinstance(self.start, AtPosition) else None
