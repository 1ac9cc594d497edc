"""Where partitions begin, and where a batch query ends: asks what the options stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from consumer_sdk.range_reads import RangeReader
from consumer_sdk.records import Partition, Position, Start, StartPoint
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.starts import Starts, questions, resolve

__all__ = ["resolved"]


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
