"""What the service tells of streams, shards, records and consumers, as JSON. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from consumer_sdk.testing.kinesis.fanout import Event, FakeConsumer
from consumer_sdk.testing.kinesis.reading import Answer
from consumer_sdk.testing.kinesis.shard import FakeRecord, FakeShard
from consumer_sdk.testing.kinesis.stream import FakeStream

__all__ = [
    "answer_shape",
    "consumer_shape",
    "event_shape",
    "shard_shape",
    "stream_shape",
]

Shape = dict[str, Any]


def stream_shape(stream: FakeStream, retention: float) -> Shape:
    """A stream, as DescribeStreamSummary has it."""
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "RetentionPeriodHours": int(retention // 3600),
        "StreamCreationTimestamp": round(stream.created, 3),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
        "OpenShardCount": len(stream.open_shards()),
    }


def shard_shape(shard: FakeShard) -> Shape:
    """A shard, as ListShards has it."""
    numbers = {"StartingSequenceNumber": str(shard.start)}
    if shard.end is not None:
        numbers["EndingSequenceNumber"] = str(shard.end)
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        "ShardId": shard.id,
        "HashKeyRange": _hashes(shard),
        "SequenceNumberRange": numbers,
        **dict(zip(names, shard.parents, strict=False)),
    }


def answer_shape(answer: Answer) -> Shape:
    """The answer to GetRecords."""
    shape: Shape = {
        "Records": _records(answer.records),
        "MillisBehindLatest": answer.behind,
    }
    if answer.next is not None:
        shape["NextShardIterator"] = answer.next
    return shape | _children(answer.children)


def event_shape(event: Event) -> Shape:
    """An event of a subscription."""
    shape: Shape = {
        "Records": _records(event.records),
        "MillisBehindLatest": event.behind,
    }
    if event.continuation is not None:
        shape["ContinuationSequenceNumber"] = str(event.continuation)
    return shape | _children(event.children)


def consumer_shape(consumer: FakeConsumer, *, is_active: bool) -> Shape:
    """A consumer."""
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": "ACTIVE" if is_active else "CREATING",
        "ConsumerCreationTimestamp": round(consumer.created, 3),
    }


def _hashes(shard: FakeShard) -> Shape:
    first, last = shard.hashes
    return {"StartingHashKey": str(first), "EndingHashKey": str(last)}


def _records(records: Sequence[FakeRecord]) -> list[Shape]:
    return [
        {
            "SequenceNumber": str(record.sequence),
            "ApproximateArrivalTimestamp": round(record.time, 3),
            "Data": base64.b64encode(record.data).decode(),
            "PartitionKey": record.key,
        }
        for record in records
    ]


def _children(children: Sequence[FakeShard]) -> Shape:
    if not children:
        return {}
    return {
        "ChildShards": [
            {
                "ShardId": child.id,
                "ParentShards": list(child.parents),
                "HashKeyRange": _hashes(child),
            }
            for child in children
        ]
    }
