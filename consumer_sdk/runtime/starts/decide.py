"""Where an assignment starts: one table of decisions, without I/O.

=============================================  ================================================
1  the broker's position was set by another    there; the store's checkpoint is replaced, aloud
   program, or by a consumer without the
   store, and is not the store's checkpoint
2  ``restart="from_start"``, and what is       as if nothing were known; pinned, so that the
   known was written by another application    same application resumes
3  the checkpoint says that all was read       nothing to read
4  the position of a broker that redelivers    the broker's own cursor, which knows its holes
   what it has not heard of; no store's
5  a checkpoint: the store's, else the         where it reads on
   broker's, also one that others have set
6  none, and the partition is newer than the   its earliest record
   group's first start
7  none                                        ``start``: earliest; a position; latest or a time,
                                               which move and are pinned
=============================================  ================================================

Then, of every start that is a position:

=============================================  ================================================
8  the broker does not store it (any more, or  ``out_of_range``: fail; earliest, where settled
   yet)                                        ranges stay; latest; a time, as of the time when
                                               it happens. Pinned, aloud, counted
9  stored, but the checkpoint knows of         that is forgotten; pinned, aloud
   positions beyond the end
10 it is more than ``max_lag`` behind the end  ``lag_policy``: warn; pause until `Consumer.resume`;
                                               skip to the end, pinned. Aloud, counted
=============================================  ================================================

Rows 2, 5 and 7 are those of storm-kafka's PartitionManager. It asked ZooKeeper first; a new topology
id with ``forceFromStart`` started at ``startOffsetTime``; all else went to the end. Rows 8 and 10 are what
it did in silence: a fetch that was out of range went to the end, and ``maxOffsetBehind`` dropped
what was failing.
"""

from __future__ import annotations

from dataclasses import replace

from consumer_sdk.errors import ConfigurationError, PositionOutOfRangeError
from consumer_sdk.records import AtPosition, AtTime, Checkpoint, Position, Start, StartPoint
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts.inputs import Decision, StartInputs

__all__ = ["choose", "decide"]


def decide(inputs: StartInputs, options: Options) -> Decision:
    """Decides where an assignment starts, by the table above.

    Raises:
        PositionOutOfRangeError: the start is out of range, and the policy is to fail.
        ConfigurationError: ``max_lag`` was given, and positions are not whole numbers.
    """
    stored = _within_end(inputs, _within_range(inputs, options, choose(inputs, options)))
    return _within_lag(inputs, options, stored)


def choose(inputs: StartInputs, options: Options) -> Decision:
    """Rows 1 to 7: where it would start if the log had no ends."""
    decision = _choose(inputs, options)
    if options.application_id is None:
        return decision
    named = replace(decision.checkpoint, application=options.application_id)
    return replace(decision, checkpoint=named)


def _choose(inputs: StartInputs, options: Options) -> Decision:
    known = inputs.known
    if known is None:
        return _begin(inputs, options)
    if inputs.reset is not None:
        return _honour(inputs, known, inputs.reset)
    if inputs.is_new_application(options):
        return _start_anew(inputs, known, options)
    return _resume(inputs, known) or _begin(inputs, options)


def _honour(inputs: StartInputs, known: Checkpoint, found: Checkpoint) -> Decision:
    """Row 1."""
    who = "another program" if inputs.is_foreign else "a consumer without this store"
    reason = (
        f"{inputs.assignment.partition}: {who} has set the group's position to {found.start!r}; "
        f"going on there, not at the store's checkpoint ({known.start!r}, with "
        f"{len(known.ranges)} settled ranges above it)"
    )
    checkpoint = replace(found, application=known.application)
    start = _start_at(found.start, StartPoint.EARLIEST)
    return Decision(start, checkpoint, is_pin=True, is_reset=True, reasons=(reason,))


def _start_anew(inputs: StartInputs, known: Checkpoint, options: Options) -> Decision:
    """Row 2."""
    decision = _begin(inputs, options)
    reason = (
        f"{inputs.assignment.partition}: application {options.application_id!r} starts anew "
        f"(restart='from_start'); the checkpoint at {known.start!r} was written by "
        f"{known.application!r}"
    )
    checkpoint = Checkpoint(resume=decision.position)
    return replace(decision, checkpoint=checkpoint, is_pin=True, reasons=(reason,))


def _resume(inputs: StartInputs, known: Checkpoint) -> Decision | None:
    """Rows 3 to 5; None where the checkpoint has no position."""
    if known.ended:
        return Decision(StartPoint.ENDED, known)
    if inputs.keeps_cursor:
        return Decision(StartPoint.BROKER, known)
    if known.start is None:
        return None
    is_settled = known.is_settled(known.start) and not known.ranges
    return Decision(AtPosition(known.start, is_settled=is_settled), known)


def _begin(inputs: StartInputs, options: Options) -> Decision:
    """Rows 6 and 7."""
    start = options.start
    is_later = inputs.is_later or inputs.assignment.discovered
    if is_later or start is StartPoint.EARLIEST:
        return Decision(_start_at(inputs.earliest, StartPoint.EARLIEST))
    if isinstance(start, AtPosition):
        return Decision(start)
    if inputs.since is not None:
        return Decision(inputs.since)
    position = inputs.latest if inputs.resolved is None else inputs.resolved
    pinned = Checkpoint(resume=position)
    return Decision(_start_at(position, StartPoint.LATEST), pinned, is_pin=position is not None)


# -- rows 8 to 10: within what the broker stores, and near enough to its end ---------------


def _start_at(position: Position | None, otherwise: StartPoint) -> Start:
    """A position, or where the adapter has to look for it itself."""
    return otherwise if position is None else AtPosition(position)


def _is_below(one: Position | None, other: Position | None) -> bool:
    return one is not None and other is not None and bool(one < other)


def _within_range(inputs: StartInputs, options: Options, decision: Decision) -> Decision:
    """Row 8 of the table: what to do where the broker does not store the start.

    Raises:
        PositionOutOfRangeError: the policy is to fail.
    """
    position, policy = decision.position, options.out_of_range
    is_gone = _is_below(position, inputs.earliest)
    if not is_gone and not _is_below(inputs.latest, position):
        return decision
    where = f"starts at {inputs.earliest!r}" if is_gone else f"ends at {inputs.latest!r}"
    what = f"{inputs.assignment.partition}: it is to start at {position!r}, but the broker's log {where}"
    if policy == "fail":
        raise PositionOutOfRangeError(
            f"{what}. Set out_of_range='earliest' or 'latest' or to an AtTime to go on (records may be lost or "
            f"repeated), or reset the group's checkpoint; where the end is that of a transaction "
            f"which is still open, wait for it"
        )
    start, target = _replacement(inputs, policy)
    clipped, lost = _skip(decision, target if is_gone else None)
    checkpoint = clipped if is_gone and policy != "latest" else clipped.at(target)
    reason = f"{what}; going on at {target!r} (out_of_range={policy!r}), {_words(lost)}"
    return _moved(decision, start, checkpoint, lost, reason)


def _replacement(inputs: StartInputs, policy: str | AtTime) -> tuple[Start, Position | None]:
    """Where to go on, and the first position that is then read, as far as it is known."""
    if isinstance(policy, AtTime):
        if inputs.replacement is None:
            return policy, inputs.earliest
        return AtPosition(inputs.replacement), inputs.replacement
    is_to_earliest = policy == "earliest"
    target = inputs.earliest if is_to_earliest else inputs.latest
    return _start_at(target, StartPoint.EARLIEST if is_to_earliest else StartPoint.LATEST), target


def _within_end(inputs: StartInputs, decision: Decision) -> Decision:
    """Row 9: what is known of the end and above is forgotten, aloud.

    The log was cut there, or the checkpoint is forged. Other records will be written there, and
    would be taken for settled.
    """
    clipped, lost = decision.checkpoint.clip(end=inputs.latest)
    if lost.above is None:
        return decision
    end, last = lost.above
    reason = (
        f"{inputs.assignment.partition}: the checkpoint knows of {last!r}, but the broker's log "
        f"ends at {end!r}; what it knows from there on is forgotten"
    )
    return _moved(decision, decision.start, clipped, 0, reason)


def _words(lost: int | None) -> str:
    if lost is None:
        return "an unknown number of records is lost"
    return f"{lost} positions skipped"


def _skip(decision: Decision, target: Position | None) -> tuple[Checkpoint, int | None]:
    """What is left of the checkpoint at a later start, and how many positions that loses.

    That is None where it is more than nothing and cannot be counted.
    """
    checkpoint = decision.checkpoint
    if checkpoint.start is None:
        checkpoint = checkpoint.at(decision.position)
    clipped, lost = checkpoint.clip(target)
    return clipped, lost.count


def _moved(
    decision: Decision, start: Start, checkpoint: Checkpoint, lost: int | None, reason: str
) -> Decision:
    """Elsewhere than was decided; a loss that cannot be counted counts as one."""
    return replace(
        decision,
        start=start,
        checkpoint=checkpoint,
        is_pin=True,
        lost=decision.lost + (1 if lost is None else lost),
        reasons=(*decision.reasons, reason),
    )


def _within_lag(inputs: StartInputs, options: Options, decision: Decision) -> Decision:
    """Row 10 of the table: what to do where the start is far behind the end.

    Raises:
        ConfigurationError: positions are not whole numbers.
    """
    position, latest, most = decision.position, inputs.latest, options.max_lag
    if most is None or position is None or latest is None or _lag(position, latest) <= most:
        return decision
    what = (
        f"{inputs.assignment.partition}: it starts at {position!r}, {_lag(position, latest)} "
        f"positions behind the end (max_lag={most})"
    )
    if options.lag_policy == "skip":
        clipped, lost = _skip(decision, latest)
        reason = f"{what}; skipped to the end, {lost} unsettled positions are lost"
        return _moved(decision, AtPosition(latest), clipped.at(latest), lost, reason)
    if options.lag_policy == "pause" and not inputs.is_resumed:
        what += "; it is not fetched until consumer.resume(partition) is called"
    return replace(decision, is_behind=True, reasons=(*decision.reasons, what))


def _lag(position: Position, latest: Position) -> int:
    if not isinstance(position, int) or not isinstance(latest, int):
        raise ConfigurationError(
            f"max_lag counts positions, which have to be whole numbers, not {position!r}: leave "
            f"max_lag= out"
        )
    return latest - position
