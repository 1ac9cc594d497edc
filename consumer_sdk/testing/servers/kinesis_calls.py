"""What `KinesisEndpoint` asks of a client, call by call."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from consumer_sdk.testing.servers.errors import ServerError

__all__ = [
    "batches",
    "children",
    "describe_shard",
    "hash_keys",
    "list_shards",
    "put_batch",
    "until_active",
]

_PATIENCE = 120.0  # seconds; the servers take milliseconds, but for a busy machine
_POLL = 0.02
_BATCH_RECORDS = 500  # what one PutRecords may carry
_BATCH_BYTES = 4 << 20  # likewise 5 MiB; what is left is for partition keys


async def until_active(client: Any, stream: str) -> None:
    """Wait until the stream is active; raises ServerError after two minutes."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while await _status(client, stream) != "ACTIVE":  # noqa: ASYNC110  Kinesis sends no event
                await asyncio.sleep(_POLL)
    except TimeoutError as error:
        raise ServerError(f"stream {stream!r} is not active after {_PATIENCE:g} s") from error


async def _status(client: Any, stream: str) -> str:
    answer = await client.describe_stream_summary(StreamName=stream)
    status: str = answer["StreamDescriptionSummary"]["StreamStatus"]
    return status


async def list_shards(client: Any, stream: str) -> list[dict[str, Any]]:
    """Return all shards of the stream, closed ones too."""
    pages = client.get_paginator("list_shards").paginate(StreamName=stream)
    return [shard async for page in pages for shard in page["Shards"]]


async def describe_shard(client: Any, stream: str, shard: str) -> dict[str, Any]:
    """Return one shard as ListShards describes it; raises ServerError when there is none."""
    for each in await list_shards(client, stream):
        if each["ShardId"] == shard:
            return each
    raise ServerError(f"stream {stream!r} has no shard {shard!r}")


async def children(client: Any, stream: str, parent: str) -> list[str]:
    """Return the ids of the shards that a split or merge of the shard made."""
    return [
        each["ShardId"]
        for each in await list_shards(client, stream)
        if parent in (each.get("ParentShardId"), each.get("AdjacentParentShardId"))
    ]


def hash_keys(shard: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first and the last hash key of a shard."""
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


def batches(records: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the records in lists that one PutRecords may carry."""
    batch: list[tuple[str, bytes]] = []
    size = 0
    for key, data in records:
        if batch and (len(batch) == _BATCH_RECORDS or size + len(data) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((key, data))
        size += len(data)
    if batch:
        yield batch


async def put_batch(
    client: Any, stream: str, batch: list[tuple[str, bytes]], place: dict[str, str]
) -> list[tuple[str, str]]:
    """Put one batch; raises ServerError when not all of it was taken."""
    entries = [{"PartitionKey": key, "Data": data, **place} for key, data in batch]
    answer = await client.put_records(StreamName=stream, Records=entries)
    if answer.get("FailedRecordCount"):
        failed = [each for each in answer["Records"] if "ErrorCode" in each]
        raise ServerError(f"stream {stream!r} did not take {len(failed)} records: {failed[0]}")
    return [(each["ShardId"], each["SequenceNumber"]) for each in answer["Records"]]
