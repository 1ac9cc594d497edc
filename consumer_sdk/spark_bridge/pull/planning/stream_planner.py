"""Where the micro-batches of one query end: asks the broker, and decides by the pure parts.

Everything here runs in the event loop of the source runner, one call at a time, as Spark calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import Partition, Position, Start, StartPoint
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.admission import Limit, Whole, admit, is_enough, stops
from consumer_sdk.spark_bridge.pull.planning.ages import AgeProbe, ArrivalTimes
from consumer_sdk.spark_bridge.pull.planning.offsets import Offsets
from consumer_sdk.spark_bridge.pull.planning.starts import NEW, Starts, questions, resolve
from consumer_sdk.spark_bridge.pull.planning.tasks import plan_tasks

__all__ = ["StreamPlanner", "resolved"]

_log = logging.getLogger(__name__)

_Positions = Mapping[Partition, Position]


class StreamPlanner:
    """The asynchronous half of `PullStreamReader`.

    Args:
        options: what was asked for.
        connections: where readers come from.
        clock: monotonic seconds; the event loop's if None.
        wall: seconds since the epoch; they are shown, and may be wrong.

    Attributes:
        latest: where the broker's logs ended when they were last asked; None before.
        waiting: since when a record waits behind the end that was answered last, in seconds since the
            epoch; of the partitions where that is known.
        look_cost: how many requests that was.
    """

    def __init__(
        self,
        options: PullOptions,
        connections: Connections,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._connections = connections
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._targets: _Positions | None = None
        self._let_go = -math.inf
        self._wall = wall
        self._arrivals = ArrivalTimes()
        self._ages = AgeProbe(options, connections, self._arrivals, self._clock)
        self.latest: Offsets | None = None
        self.waiting: Mapping[Partition, float] = {}
        self.look_cost = 1

    @property
    def is_final(self) -> bool:
        """This is an AvailableNow run: what there was when it began is all that is read."""
        return self._targets is not None

    async def freeze(self) -> None:
        """Reads no further than what is there now."""
        async with self._connections.borrowed(self._options) as reader:
            self._targets = await _latest(reader, await reader.partitions())

    async def end(self, start: dict[str, Any], limit: Limit) -> dict[str, Any]:
        """Where the batch from ``start`` ends; ``start`` itself when it would be empty.

        Raises:
            AdapterError: the broker did not answer, or refused.
            ConfigurationError: the options cannot be fulfilled.
            OffsetFormatError: ``start`` was not written by this source.
        """
        async with self._connections.borrowed(self._options) as reader:
            begin = Offsets.from_json(start, reader.decode_position)
            end = await self._end(reader, begin, limit)
            return start if end is begin else end.to_json(reader.encode_position)

    async def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[PartitionRange]]:
        """The ranges that each task of the batch reads.

        Raises:
            DataLossError: the broker no longer has all of it, and ``failOnDataLoss`` is on.
            AdapterError: the broker did not answer.
        """
        async with self._connections.borrowed(self._options) as reader:
            begin = Offsets.from_json(start, reader.decode_position)
            stop = Offsets.from_json(end, reader.decode_position)
            gone = begin.gone_in(stop)
            return await plan_tasks(reader, begin.ranges_to(stop), self._options, gone)

    async def aclose(self) -> None:
        """Ends the probe for ages, which runs in the background."""
        await self._ages.aclose()

    async def _end(self, reader: RangeReader, begin: Offsets, limit: Limit) -> Offsets:
        partitions = await reader.partitions()
        hidden = await _hidden(reader, begin, partitions)
        since = await self._since(reader, begin, partitions)
        starts = {**begin.positions, **since}
        asked_at = self._wall()
        latest = await _latest(reader, partitions)
        self._arrivals.look(latest, asked_at)
        self.latest, self.look_cost = Offsets(latest), reader.requests_per_look
        reach = stops({p: starts[p] for p in latest if p in starts}, latest, self._targets)
        chosen = await self._admitted(reader, starts, reach, limit)
        end = begin if chosen is None else begin.advance({**hidden, **chosen}, since)
        self.waiting = self._arrivals.waiting(end.positions)
        self._ages.ask(end.positions)
        if end is not begin:
            self._let_go = self._clock()
            _log_batch(begin, end, latest)
        return end

    async def _since(
        self, reader: RangeReader, begin: Offsets, partitions: Collection[Partition]
    ) -> dict[Partition, Position]:
        """Where partitions begin that the query does not know yet."""
        unknown = begin.unknown(partitions)
        if not unknown:
            return {}
        starts = self._options.stream_starts() if begin.is_initial else NEW
        return await resolved(reader, self._options, starts, unknown)

    async def _admitted(
        self, reader: RangeReader, starts: _Positions, reach: _Positions, limit: Limit
    ) -> _Positions | None:
        """How far the batch goes; None for not at all yet."""
        if limit.kind == "all":
            return reach
        ranges = [PartitionRange(p, starts[p], stop) for p, stop in reach.items()]
        waiting = [each for each in ranges if each.start < each.stop]
        backlog = await reader.records(waiting)
        limits, waited = self._options.limits, self._clock() - self._let_go
        if not is_enough(backlog, limits, limit, waited=waited, is_final=self.is_final):
            return None  # before anybody asks for sizes, again and again
        sizes = await self._sizes(reader, waiting, limit)
        taken = admit(backlog, limits, limit, waited=waited, is_final=self.is_final, sizes=sizes)
        if isinstance(taken, Whole):
            return reach if taken is Whole.ALL else None
        return {**reach, **await _cuts(reader, waiting, backlog, taken)}

    async def _sizes(
        self, reader: RangeReader, waiting: Sequence[PartitionRange], limit: Limit
    ) -> Mapping[Partition, float] | None:
        if self._options.limits.max_bytes is None and limit.kind != "max_bytes":
            return None
        return await reader.record_size([each.partition for each in waiting])


async def resolved(
    reader: RangeReader,
    options: PullOptions,
    starts: Starts,
    partitions: Collection[Partition],
) -> dict[Partition, Position]:
    """A position for each partition that the broker still has.

    Where the group stands is what its checkpoint store says, if the query has one that knows the
    partition; else what the broker says.

    Raises:
        ConfigurationError: the option cannot be fulfilled; says which.
        AdapterError: the broker did not answer.
        StoreError: the store did not.
    """
    answers: dict[Start, Mapping[Partition, Position | None]] = {}
    for at, asked in questions(starts, partitions).items():
        answers[at] = await reader.positions(asked, at)
        if at is StartPoint.BROKER:
            from consumer_sdk.spark_bridge.pull.acks import stored_positions

            answers[at] = {**answers[at], **await stored_positions(options, reader, asked)}
    return resolve(starts, partitions, answers, reader.decode_position)


async def _hidden(
    reader: RangeReader, begin: Offsets, partitions: Collection[Partition]
) -> dict[Partition, Position]:
    """The positions of partitions that the query has read and that the broker does not list now.

    They stay as they are: the list may lack a partition for a moment, or the options no longer choose
    it, and may choose it again later. A partition that the broker has deleted is left out.
    """
    unlisted = sorted(begin.positions.keys() - set(partitions))
    asked = [partition for partition in unlisted if reader.is_chosen(partition)]
    found = await reader.positions(asked, StartPoint.EARLIEST) if asked else {}
    gone = {partition for partition in asked if found[partition] is None}
    return {p: begin.positions[p] for p in unlisted if p not in gone}


async def _latest(
    reader: RangeReader, partitions: Collection[Partition]
) -> dict[Partition, Position]:
    found = await reader.positions(partitions, StartPoint.LATEST)
    return {partition: at for partition, at in found.items() if at is not None}


async def _cuts(
    reader: RangeReader,
    waiting: Collection[PartitionRange],
    backlog: Mapping[Partition, int],
    taken: Mapping[Partition, int],
) -> dict[Partition, Position]:
    """Where each range stops of which so many records are taken."""
    cuts = {}
    for whole in waiting:
        count = taken.get(whole.partition, 0)
        if not count:
            cuts[whole.partition] = whole.start
        elif count < backlog[whole.partition]:
            cuts[whole.partition] = await reader.cut(whole, count)
    return cuts


def _log_batch(begin: Offsets, end: Offsets, latest: _Positions) -> None:
    """One line for each batch: Spark's own progress cannot show a Python source's lag."""
    ends = end.positions
    behind = [at - ends[p] for p, at in latest.items() if isinstance(at, int) and p in ends]
    moved = sum(begin.positions.get(p) != at for p, at in ends.items())
    lag = f"{sum(behind)} records, at most {max(behind)} of one partition" if behind else "unknown"
    _log.info("a batch of %d of %d partitions; lag behind it: %s", moved, len(ends), lag)
