"""Asks the store and the broker what has to be known to decide where assignments start.

A start that moves ("latest", or a time) is resolved once for the whole group and pinned in the
store. A member that asked anew, because it claims a partition later or for the first time, would
lose in silence what came between.

- "latest" is pinned as the end of each partition of the stream: no clock has a part in it. A
  partition that is not among them is newer than the group, and is read from its earliest record.
- A time is pinned as it was given: members that count back from their own start give different
  ones.
- Of a broker that knows no ends (Kinesis) "latest" is pinned as the time of the broker's clock. A
  newer partition needs no care then, since all of its records are later.

Without a store there is no place for that: each partition is pinned alone, by the first commit of
whoever holds it first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from consumer_sdk.abc import Adapter, CheckpointStore
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import (
    Assignment,
    AtTime,
    Checkpoint,
    Outcome,
    Partition,
    Position,
    StartPoint,
)
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.starts.inputs import StartInputs
from consumer_sdk.trackers import decode_checkpoint

__all__ = ["ResolvedStart", "StartLookup", "resolve"]

log = logging.getLogger(__name__)

VERSION = 1
"""Of the JSON that a group's start is pinned as."""
HELD_POLL = 0.05
"""Seconds between looks at what the broker has answered."""


class StartLookup:
    """Claims in the store, if there is one, and asks; decides nothing."""

    def __init__(self, adapter: Adapter, store: CheckpointStore | None, options: Options) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options

    async def ask(self, assignments: Sequence[Assignment]) -> list[StartInputs]:
        """What is known of each; those that the store does not grant are left out.

        Raises:
            StoreError: the store cannot be read, or what it has cannot be used.
            AdapterError: the broker does not answer.
        """
        stored = await self._stored(assignments)
        return await self._ask_broker(stored) if stored else []

    async def _stored(
        self, assignments: Sequence[Assignment]
    ) -> dict[Assignment, Checkpoint | None]:
        """What the store has; None where it has nothing, or where there is none."""
        stored: dict[Assignment, Checkpoint | None] = {}
        for assignment, text in (await self._claim(assignments)).items():
            if isinstance(text, Outcome):
                log.warning("%s was not granted: %s", assignment.partition, text.error or "fenced")
            else:
                stored[assignment] = None if text is None else self._decode(assignment, text)
        return stored

    async def _claim(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        if self._store is None:
            return dict.fromkeys(assignments)
        await self._until_held()
        return await self._store.claim(self._adapter.group or "", assignments)

    async def _until_held(self) -> None:
        """Waits until the adapter knows that this member's session still lasts."""
        # 1. The process is stopped. 2. Its session ends, and another member claims the partition. 3. The
        # process goes on, before its client has asked the group: a claim now would take the partition
        # from its rightful owner.
        time = asyncio.get_running_loop().time
        while time() >= self._adapter.held_until():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(HELD_POLL)

    def _decode(self, assignment: Assignment, text: str) -> Checkpoint:
        try:
            return decode_checkpoint(
                text,
                broker=self._adapter.broker,
                partition=assignment.partition,
                identity=self._adapter.identity(assignment),
                decode_position=self._adapter.decode_position,
            )
        except CheckpointMismatchError as error:
            raise self._remade(assignment.partition, error) from error

    def _remade(self, partition: Partition, error: Exception) -> CheckpointMismatchError:
        """The error with the way on: all of the stream's checkpoints, for all members."""
        group, stream = shlex.quote(self._adapter.group or ""), shlex.quote(partition.stream)
        return CheckpointMismatchError(
            f"{partition}: {error}. If {partition.stream!r} was deleted and made again, its "
            f"checkpoints are of records that are gone: stop the group's consumers, run "
            f"`consumer-sdk checkpoints delete STORE_URL {group} --stream {stream}`, and start them: "
            f"they begin at start="
        )

    async def _ask_broker(
        self, stored: Mapping[Assignment, Checkpoint | None]
    ) -> list[StartInputs]:
        adapter, assignments = self._adapter, list(stored)
        redelivers = adapter.capabilities.wants_settled
        committed = await adapter.committed(assignments)
        known = [
            StartInputs(
                assignment=a, stored=stored[a], committed=committed.get(a), redelivers=redelivers
            )
            for a in assignments
        ]
        unknown = [each.assignment for each in known if each.needs_start(self._options)]
        resolved = await resolve(adapter, self._store, self._options, unknown) if unknown else {}
        # Asked last: the end is then never below what another member has pinned meanwhile.
        earliest = await adapter.positions(assignments, StartPoint.EARLIEST)
        latest = await adapter.positions(assignments, StartPoint.LATEST)
        nothing, policy = ResolvedStart(), self._options.out_of_range
        replacement = (
            await resolve_time(adapter, policy, assignments) if isinstance(policy, AtTime) else {}
        )
        return [
            replace(
                each,
                resolved=resolved.get(each.assignment, nothing).position,
                since=resolved.get(each.assignment, nothing).since,
                is_later=resolved.get(each.assignment, nothing).is_later,
                earliest=earliest.get(each.assignment),
                latest=latest.get(each.assignment),
                replacement=replacement.get(each.assignment, nothing).position,
            )
            for each in known
        ]


# -- what a start that moves stands for ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolvedStart:
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
) -> dict[Assignment, ResolvedStart]:
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
    found: dict[Assignment, ResolvedStart] = {}
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
) -> dict[Assignment, ResolvedStart]:
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
) -> dict[Assignment, ResolvedStart]:
    """What a time stands for: its position, or the time itself where the broker knows no ends."""
    if not adapter.capabilities.knows_ends:
        return dict.fromkeys(assignments, ResolvedStart(since=start))
    # First the end, for where no record is that new: what comes between the two may be.
    ends = await adapter.positions(assignments, StartPoint.LATEST)
    found = await adapter.positions(assignments, start)
    positions = {a: found.get(a) for a in assignments}
    return {a: ResolvedStart(ends.get(a) if at is None else at) for a, at in positions.items()}


def _in(pinned: Mapping[str, str], assignment: Assignment, adapter: Adapter) -> ResolvedStart:
    text = pinned.get(assignment.partition.id)
    return (
        ResolvedStart(is_later=True)
        if text is None
        else ResolvedStart(adapter.decode_position(text))
    )


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
