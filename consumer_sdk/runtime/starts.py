"""Where an assignment starts: one decision, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import (
    Assignment,
    AtPosition,
    Checkpoint,
    Position,
    Start,
    StartPoint,
)

__all__ = ["Decision", "decide"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Where to start, and what the tracker is restored from.

    Attributes:
        start: what the adapter seeks to.
        checkpoint: what the tracker restores.
        is_pin: the start was resolved just now from something that moves (latest, a time), so
            that it must be durable before the first record is handed out.
        lost: unsettled positions that are skipped, where they can be counted; else 0.
        reason: what happened, when records are gone; to be logged.
    """

    start: Start
    checkpoint: Checkpoint = Checkpoint()  # noqa: RUF009 - frozen
    is_pin: bool = False
    lost: int = 0
    reason: str = ""


def decide(
    assignment: Assignment,
    known: Checkpoint | None,
    *,
    start: Start,
    resolved: Position | None,
    earliest: Position | None,
    latest: Position | None,
    out_of_range: str,
    keeps_cursor: bool = False,
) -> Decision:
    """Decides where ``assignment`` starts.

    ====================  ==================================================================
    a checkpoint is known  at its resume position, if the broker still stores it
    … by the broker alone  where it redelivers what it has not heard of, it is left to do that
    … that is too old      ``out_of_range``: fail, earliest (its settled ranges stay), latest
    … that is too new      ``out_of_range``: fail, earliest or latest, from nothing
    none, new partition    earliest: it appeared after the group first started
    none                   ``start``; latest and a time are pinned
    ====================  ==================================================================

    Args:
        known: the store's checkpoint, else the broker's; None for neither.
        start: what the consumer was configured with.
        resolved: the position that ``start`` stands for now, where it is a time or latest.
        earliest: the first position that the broker stores; None where it cannot say.
        latest: the next position that it will write.
        out_of_range: ``"fail"``, ``"earliest"`` or ``"latest"``.
        keeps_cursor: the checkpoint is the broker's own, and it redelivers what it has not heard
            of: a seek would make it forget what was settled above a hole. (A store's checkpoint
            knows that, and has to see those records again, since a broker may lose acks.)

    Raises:
        PositionOutOfRangeError: the checkpoint is out of range, and the policy is to fail.
    """
    if known is not None and known.ended:
        return Decision(StartPoint.ENDED, known)
    position = None if known is None else known.start
    if known is not None and (position is not None or keeps_cursor):
        if not _is_below(position, earliest) and not _is_below(latest, position):
            return Decision(StartPoint.BROKER if keeps_cursor else AtPosition(position), known)
        return _out_of_range(assignment, known, position, earliest, latest, out_of_range)
    if assignment.discovered or start is StartPoint.EARLIEST:
        return Decision(_at(earliest, StartPoint.EARLIEST))
    if isinstance(start, AtPosition):
        return Decision(start)
    position = latest if resolved is None else resolved
    pinned = Checkpoint(resume=position)
    return Decision(_at(position, StartPoint.LATEST), pinned, is_pin=position is not None)


def _is_below(one: Position | None, other: Position | None) -> bool:
    return one is not None and other is not None and bool(one < other)


def _at(position: Position | None, otherwise: StartPoint) -> Start:
    return otherwise if position is None else AtPosition(position)


def _out_of_range(  # noqa: PLR0917 - one call, right above
    assignment: Assignment,
    known: Checkpoint,
    position: Position,
    earliest: Position | None,
    latest: Position | None,
    policy: str,
) -> Decision:
    is_gone = _is_below(position, earliest)
    where = f"starts at {earliest!r}" if is_gone else f"ends at {latest!r}"
    what = (
        f"{assignment.partition}: the checkpoint is at {position!r}, but the broker's log {where}"
    )
    if policy == "fail":
        raise PositionOutOfRangeError(
            f"{what}. Set out_of_range='earliest' or 'latest' to go on (records may be lost or "
            f"repeated), or reset the group's checkpoint"
        )
    target = earliest if policy == "earliest" else latest
    clipped, gone = known.clip(target if is_gone else None)
    checkpoint = clipped if is_gone and policy == "earliest" else Checkpoint(resume=target)
    lost = gone.count
    reason = f"{what}; going on at {target!r} (out_of_range={policy!r}), {lost} positions skipped"
    start = _at(target, StartPoint.EARLIEST if policy == "earliest" else StartPoint.LATEST)
    return Decision(start, checkpoint, is_pin=True, lost=lost, reason=reason)
