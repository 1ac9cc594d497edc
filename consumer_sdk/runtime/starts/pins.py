"""What a start that moves stood for when the group first asked: pinned once, for all its members.

A member that claims a partition later, or for the first time, must not ask anew: what came between
would be lost in silence. "latest" is pinned as the end of each partition of the stream, which no
clock has a part in; a partition that is not among them is newer than the group, and is read from
its earliest record. A time is pinned as it was given: members that count back from their own start
give different ones. Of a broker that knows no ends (Kinesis) "latest" is pinned as what its own clock
says; then a partition that is newer needs no care, since all of its records are later. Without a store there is no place for that: each partition is pinned alone, by
the first commit of whoever holds it first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consumer_sdk.abc import Adapter, CheckpointStore
from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Assignment, AtTime, Position, StartPoint
from consumer_sdk.runtime.options import Options

__all__ = ["Resolved", "resolve"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Resolved:
    """What ``start`` stands for.

    Attributes:
        position: the end where no record is that new; None where the broker cannot say.
        since: the time itself, of a broker that knows no ends.
        is_later: the partition is newer than the group's first start.
    """

    position: Position | None = None
    since: AtTime | None = None
    is_later: bool = False


async def resolve(
    adapter: Adapter,
    store: CheckpointStore | None,
    options: Options,
    assignments: Sequence[Assignment],
) -> dict[Assignment, Resolved]:
    """What ``start`` stands for, for those of which nothing is known; the group's if it can be.

    Raises:
        TransientAdapterError, TransientStoreError: one of them does not answer.
        CheckpointFormatError: what is pinned is no start.
    """
    start = options.start
    if start is not StartPoint.LATEST and not isinstance(start, AtTime):
        return {}
    if store is None:
        return await resolve_time(adapter, start, assignments) if isinstance(start, AtTime) else {}
    found: dict[Assignment, Resolved] = {}
    for name, theirs in _by_name(adapter, options, assignments).items():
        found |= await _of_group(adapter, store, start, name, theirs)
    return found


def _by_name(
    adapter: Adapter, options: Options, assignments: Sequence[Assignment]
) -> Mapping[str, list[Assignment]]:
    """One name for each incarnation of a stream, and for each application that starts anew."""
    named: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        name, identity = assignment.partition.stream, adapter.identity(assignment)
        if identity is not None:
            name += f"@{identity}"
        if options.restart == "from_start":
            name += f"#{options.application_id}"
        named.setdefault(name, []).append(assignment)
    return named


async def _of_group(
    adapter: Adapter,
    store: CheckpointStore,
    start: AtTime | StartPoint,
    name: str,
    assignments: Sequence[Assignment],
) -> dict[Assignment, Resolved]:
    stream, group = assignments[0].partition.stream, adapter.group or ""
    wanted = await _propose(adapter, start, stream)
    if wanted is None:
        return {}
    text = await store.pin(group, name, wanted)
    try:
        pinned = _decode(text)
        if isinstance(pinned, AtTime):
            return await resolve_time(adapter, pinned, assignments)
        return {a: _in(pinned, a, adapter) for a in assignments}
    except (CheckpointFormatError, RecursionError, ValueError) as error:
        raise CheckpointFormatError(
            f"the start that group {group!r} has pinned for {name!r} is none: {text[:80]!r}: {error}. "
            f"Delete it (store.unpin) to have it resolved anew"
        ) from error


async def resolve_time(
    adapter: Adapter, start: AtTime, assignments: Sequence[Assignment]
) -> dict[Assignment, Resolved]:
    """What a time stands for: its position, or the time itself where the broker knows no ends."""
    if not adapter.capabilities.knows_ends:
        return dict.fromkeys(assignments, Resolved(since=start))
    # First the end, for where no record is that new: what comes between the two may be.
    ends = await adapter.positions(assignments, StartPoint.LATEST)
    found = await adapter.positions(assignments, start)
    positions = {a: found.get(a) for a in assignments}
    return {a: Resolved(ends.get(a) if at is None else at) for a, at in positions.items()}


def _in(pinned: Mapping[str, str], assignment: Assignment, adapter: Adapter) -> Resolved:
    text = pinned.get(assignment.partition.id)
    return Resolved(is_later=True) if text is None else Resolved(adapter.decode_position(text))


async def _propose(adapter: Adapter, start: AtTime | StartPoint, stream: str) -> str | None:
    """What to pin unless it is pinned already; None where the broker cannot say."""
    if start is StartPoint.LATEST and not adapter.capabilities.knows_ends:
        start = AtTime(await adapter.time())
    if isinstance(start, AtTime):
        return json.dumps({"version": VERSION, "time": float(start.time)})
    everywhere = [Assignment(partition, 0) for partition in await adapter.partitions(stream)]
    ends = await adapter.positions(everywhere, start)
    texts = {
        assignment.partition.id: adapter.encode_position(end)
        for assignment, end in ends.items()
        if end is not None
    }
    return json.dumps({"version": VERSION, "positions": texts}) if texts else None


def _decode(text: str) -> AtTime | Mapping[str, str]:
    body = json.loads(text)
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise ValueError(f"not of version {VERSION}")
    time, positions = body.get("time"), body.get("positions")
    if isinstance(time, float) and math.isfinite(time):
        return AtTime(time)
    if isinstance(positions, dict) and all(isinstance(p, str) for p in positions.values()):
        return positions
    raise ValueError("neither a time nor positions")
