"""What requests are made of, and what answers tell, but for records. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from consumer_sdk.adapters.kinesis.service.service import (
    FanOutConsumer,
    IteratorStart,
    Shard,
    StreamFacts,
)
from consumer_sdk.adapters.kinesis.service.translation import Faults
from consumer_sdk.errors import (
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from consumer_sdk.options import OptionType

__all__ = [
    "address",
    "faults_of",
    "next_token",
    "no_stream",
    "place",
    "read_consumer",
    "read_facts",
    "read_shard",
    "required",
    "words",
]

T = TypeVar("T")

ARN = re.compile(r"arn:aws[\w-]*:kinesis:([\w-]+):\d*:stream/[\w.-]{1,128}", re.ASCII)
NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)

STREAM = OptionType(
    "the name or the ARN of a stream: 1 to 128 letters, digits, '.', '_', '-', or "
    "arn:aws:kinesis:<region>:<account>:stream/<name>",
    lambda value: isinstance(value, str) and bool(ARN.fullmatch(value) or NAME.fullmatch(value)),
)


def address(stream: str) -> tuple[str | None, dict[str, str]]:
    """The region that a stream's ARN names, and how requests name the stream.

    Raises:
        ConfigurationError: this is neither a name nor an ARN.
    """
    STREAM.check("stream", stream)
    found = ARN.fullmatch(stream)
    return (found[1], {"StreamARN": stream}) if found else (None, {"StreamName": stream})


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
    """What DescribeStreamSummary tells; to be called where the answer is `readable`."""
    return StreamFacts(_text(summary["StreamARN"]), summary["StreamCreationTimestamp"].timestamp())


def read_shard(shard: Mapping[str, Any]) -> Shard:
    """What ListShards tells of one shard; to be called where the answer is `readable`."""
    parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    is_closed = bool((shard.get("SequenceNumberRange") or {}).get("EndingSequenceNumber"))
    return Shard(
        _text(shard["ShardId"]), tuple(_text(parent) for parent in parents if parent), is_closed
    )


def read_consumer(consumer: Mapping[str, Any]) -> FanOutConsumer:
    """What ListStreamConsumers tells of one; to be called where the answer is `readable`."""
    created = consumer["ConsumerCreationTimestamp"]
    return FanOutConsumer(
        _text(consumer["ConsumerName"]),
        _text(consumer["ConsumerStatus"]),
        f"registered {created:%Y-%m-%d %H:%M:%S %Z}".strip(),
    )


def required(answer: Mapping[str, Any], name: str, kind: type[T], doing: str) -> T:
    """A field of an answer.

    Raises:
        TransientAdapterError: it is not there, is empty text, or is of another kind; some proxy
            may have answered.
    """
    found = answer.get(name)
    if isinstance(found, kind) and found != "":
        return found
    raise TransientAdapterError(f"{doing}: the answer has {found!r:.50} for {name}")


def next_token(answer: Mapping[str, Any], doing: str) -> str | None:
    """How to ask for the next page of a list; None: this was the last one.

    Raises:
        TransientAdapterError: it is no text; some proxy may have answered.
    """
    return required(answer, "NextToken", str, doing) if answer.get("NextToken") else None


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{value!r:.50} where a name should be")
