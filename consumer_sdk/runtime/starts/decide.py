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

Rows 2, 5 and 7 are storm-kafka's PartitionManager, which asked ZooKeeper, then ``forceFromStart`` of a
new topology id, which started at ``startOffsetTime``, and otherwise went to the end; 8 and 10 are what it did in silence (its fetch went to
the end when it was out of range, and ``maxOffsetBehind`` dropped what was failing).
"""

from __future__ import annotations

from dataclasses import replace

from consumer_sdk.records import AtPosition, Checkpoint, StartPoint
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts.inputs import Decision, Facts
from consumer_sdk.runtime.starts.limits import at, within_end, within_lag, within_range

__all__ = ["choose", "decide"]


def decide(facts: Facts, options: Options) -> Decision:
    """Decides where an assignment starts, by the table above.

    Raises:
        PositionOutOfRangeError: the start is out of range, and the policy is to fail.
        ConfigurationError: ``max_lag`` was given, and positions are not whole numbers.
    """
    stored = within_end(facts, within_range(facts, options, choose(facts, options)))
    return within_lag(facts, options, stored)


def choose(facts: Facts, options: Options) -> Decision:
    """Rows 1 to 7: where it would start if the log had no ends."""
    decision = _choose(facts, options)
    if options.application_id is None:
        return decision
    named = replace(decision.checkpoint, application=options.application_id)
    return replace(decision, checkpoint=named)


def _choose(facts: Facts, options: Options) -> Decision:
    known = facts.known
    if known is None:
        return _begin(facts, options)
    if facts.reset is not None:
        return _honour(facts, known, facts.reset)
    if facts.is_new_application(options):
        return _start_anew(facts, known, options)
    return _resume(facts, known) or _begin(facts, options)


def _honour(facts: Facts, known: Checkpoint, found: Checkpoint) -> Decision:
    """Row 1."""
    who = "another program" if facts.is_foreign else "a consumer without this store"
    reason = (
        f"{facts.assignment.partition}: {who} has set the group's position to {found.start!r}; "
        f"going on there, not at the store's checkpoint ({known.start!r}, with "
        f"{len(known.ranges)} settled ranges above it)"
    )
    checkpoint = replace(found, application=known.application)
    start = at(found.start, StartPoint.EARLIEST)
    return Decision(start, checkpoint, is_pin=True, is_reset=True, reasons=(reason,))


def _start_anew(facts: Facts, known: Checkpoint, options: Options) -> Decision:
    """Row 2."""
    decision = _begin(facts, options)
    reason = (
        f"{facts.assignment.partition}: application {options.application_id!r} starts anew "
        f"(restart='from_start'); the checkpoint at {known.start!r} was written by "
        f"{known.application!r}"
    )
    checkpoint = Checkpoint(resume=decision.position)
    return replace(decision, checkpoint=checkpoint, is_pin=True, reasons=(reason,))


def _resume(facts: Facts, known: Checkpoint) -> Decision | None:
    """Rows 3 to 5; None where the checkpoint has no position."""
    if known.ended:
        return Decision(StartPoint.ENDED, known)
    if facts.keeps_cursor:
        return Decision(StartPoint.BROKER, known)
    if known.start is None:
        return None
    is_settled = known.is_settled(known.start) and not known.ranges
    return Decision(AtPosition(known.start, is_settled=is_settled), known)


def _begin(facts: Facts, options: Options) -> Decision:
    """Rows 6 and 7."""
    start = options.start
    is_later = facts.is_later or facts.assignment.discovered
    if is_later or start is StartPoint.EARLIEST:
        return Decision(at(facts.earliest, StartPoint.EARLIEST))
    if isinstance(start, AtPosition):
        return Decision(start)
    if facts.since is not None:
        return Decision(facts.since)
    position = facts.latest if facts.resolved is None else facts.resolved
    pinned = Checkpoint(resume=position)
    return Decision(at(position, StartPoint.LATEST), pinned, is_pin=position is not None)
