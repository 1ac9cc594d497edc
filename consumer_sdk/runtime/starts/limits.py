"""Where an assignment may start: within what the broker stores, and near enough to the end."""

from __future__ import annotations

from dataclasses import replace

from consumer_sdk.errors import ConfigurationError, PositionOutOfRangeError
from consumer_sdk.records import AtPosition, AtTime, Checkpoint, Position, Start, StartPoint
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts.inputs import Decision, Facts

__all__ = ["at", "within_end", "within_lag", "within_range"]


def at(position: Position | None, otherwise: StartPoint) -> Start:
    """A position, or where the adapter has to look for it itself."""
    return otherwise if position is None else AtPosition(position)


def _is_below(one: Position | None, other: Position | None) -> bool:
    return one is not None and other is not None and bool(one < other)


def within_range(facts: Facts, options: Options, decision: Decision) -> Decision:
    """Row 8 of the table: what to do where the broker does not store the start.

    Raises:
        PositionOutOfRangeError: the policy is to fail.
    """
    position, policy = decision.position, options.out_of_range
    is_gone = _is_below(position, facts.earliest)
    if not is_gone and not _is_below(facts.latest, position):
        return decision
    where = f"starts at {facts.earliest!r}" if is_gone else f"ends at {facts.latest!r}"
    what = f"{facts.assignment.partition}: it is to start at {position!r}, but the broker's log {where}"
    if policy == "fail":
        raise PositionOutOfRangeError(
            f"{what}. Set out_of_range='earliest' or 'latest' or to an AtTime to go on (records may be lost or "
            f"repeated), or reset the group's checkpoint; where the end is that of a transaction "
            f"which is still open, wait for it"
        )
    start, target = _replacement(facts, policy)
    clipped, lost = _skip(decision, target if is_gone else None)
    checkpoint = clipped if is_gone and policy != "latest" else clipped.at(target)
    reason = f"{what}; going on at {target!r} (out_of_range={policy!r}), {_words(lost)}"
    return _moved(decision, start, checkpoint, lost, reason)


def _replacement(facts: Facts, policy: str | AtTime) -> tuple[Start, Position | None]:
    """Where to go on, and the first position that is then read, as far as it is known."""
    if isinstance(policy, AtTime):
        if facts.replacement is None:
            return policy, facts.earliest
        return AtPosition(facts.replacement), facts.replacement
    is_to_earliest = policy == "earliest"
    target = facts.earliest if is_to_earliest else facts.latest
    return at(target, StartPoint.EARLIEST if is_to_earliest else StartPoint.LATEST), target


def within_end(facts: Facts, decision: Decision) -> Decision:
    """Row 9: what is known of the end and above is forgotten, aloud.

    The log was cut there, or the checkpoint is forged. Other records will be written there, and
    would be taken for settled.
    """
    clipped, lost = decision.checkpoint.clip(end=facts.latest)
    if lost.above is None:
        return decision
    end, last = lost.above
    reason = (
        f"{facts.assignment.partition}: the checkpoint knows of {last!r}, but the broker's log "
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


def within_lag(facts: Facts, options: Options, decision: Decision) -> Decision:
    """Row 10 of the table: what to do where the start is far behind the end.

    Raises:
        ConfigurationError: positions are not whole numbers.
    """
    position, latest, most = decision.position, facts.latest, options.max_lag
    if most is None or position is None or latest is None or _lag(position, latest) <= most:
        return decision
    what = (
        f"{facts.assignment.partition}: it starts at {position!r}, {_lag(position, latest)} "
        f"positions behind the end (max_lag={most})"
    )
    if options.lag_policy == "skip":
        clipped, lost = _skip(decision, latest)
        reason = f"{what}; skipped to the end, {lost} unsettled positions are lost"
        return _moved(decision, AtPosition(latest), clipped.at(latest), lost, reason)
    if options.lag_policy == "pause" and not facts.is_resumed:
        what += "; it is not fetched until consumer.resume(partition) is called"
    return replace(decision, is_behind=True, reasons=(*decision.reasons, what))


def _lag(position: Position, latest: Position) -> int:
    if not isinstance(position, int) or not isinstance(latest, int):
        raise ConfigurationError(
            f"max_lag counts positions, which have to be whole numbers, not {position!r}: leave "
            f"max_lag= out"
        )
    return latest - position
