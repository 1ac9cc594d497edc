"""What requests are made of, and what answers tell, but for records. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from consumer_sdk.adapters.kinesis.service import IteratorStart, Shard, StreamFacts
from consumer_sdk.adapters.kinesis.translation import Faults
from consumer_sdk.errors import (
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)

__all__ = [
    "address",
    "faults_of",
    "no_stream",
    "place",
    "read_facts",
    "read_shard",
    "required",
    "words",
]

ARN = re.compile(r"arn:aws[\w-]*:kinesis:([\w-]+):\d*:stream/[\w.-]{1,128}", re.ASCII)
NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


def address(stream: str) -> tuple[str | None, dict[str, str]]:
    """The region that a stream's ARN names, and how requests name the stream.

    Raises:
        ConfigurationError: this is neither a name nor an ARN.
    """
    if found := ARN.fullmatch(stream):
        return found[1], {"StreamARN": stream}
    if NAME.fullmatch(stream):
        return None, {"StreamName": stream}
    raise ConfigurationError(
        f"stream={stream!r}: give a name of 1 to 128 letters, digits, '.', '_', '-', "
        f"or arn:aws:kinesis:<region>:<account>:stream/<name>"
    )


def no_stream(stream: str, where: str) -> ConfigurationError:
    """The error for a stream that is to be opened and does not exist."""
    return ConfigurationError(
        f"there is no stream {stream!r} at {where}: create it, or look at stream=, region_name= "
        f"and the account that the credentials belong to"
    )


def place(start: IteratorStart, sequence_name: str) -> dict[str, Any]:
    """A start's parameters, but for its kind.

    Args:
        sequence_name: what the operation calls the sequence number.
    """
    if start.sequence is not None:
        return {sequence_name: str(start.sequence)}
    if start.time is not None:
        return {"Timestamp": datetime.fromtimestamp(start.time, UTC)}
    return {}


def words(start: IteratorStart) -> str:
    """A start, for messages."""
    where = start.sequence if start.sequence is not None else start.time
    return start.kind if where is None else f"{start.kind} {where}"


def faults_of(start: IteratorStart) -> Faults:
    """What is wrong with a request that names a sequence number is that number."""
    if start.sequence is None:
        return {}
    return {"InvalidArgumentException": PositionOutOfRangeError}


def read_facts(summary: Mapping[str, Any]) -> StreamFacts:
    """What DescribeStreamSummary tells."""
    return StreamFacts(summary["StreamARN"], summary["StreamCreationTimestamp"].timestamp())


def read_shard(shard: Mapping[str, Any]) -> Shard:
    """What ListShards tells of one shard."""
    parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    is_closed = bool((shard.get("SequenceNumberRange") or {}).get("EndingSequenceNumber"))
    return Shard(shard["ShardId"], tuple(parent for parent in parents if parent), is_closed)


def required(answer: Mapping[str, Any], name: str, doing: str) -> Any:
    """A field of an answer.

    Raises:
        TransientAdapterError: it is not there; some proxy may have answered.
    """
    try:
        return answer[name]
    except KeyError as error:
        raise TransientAdapterError(f"{doing}: the answer has no {name}") from error
