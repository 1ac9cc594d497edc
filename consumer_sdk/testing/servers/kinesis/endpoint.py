"""What tests do with a Kinesis that was started here or elsewhere."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from io import BytesIO
from typing import Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.errors import ServerError

__all__ = ["REGION", "KinesisEndpoint"]

_PATIENCE = 120.0  # seconds; the servers take milliseconds, but for a busy machine
_POLL = 0.02
_BATCH_RECORDS = 500  # what one PutRecords may carry
_BATCH_BYTES = 4 << 20  # likewise 5 MiB; what is left is for partition keys


async def _until_active(client: Any, stream: str) -> None:
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


async def _list_shards(client: Any, stream: str) -> list[dict[str, Any]]:
    """Return all shards of the stream, closed ones too."""
    pages = client.get_paginator("list_shards").paginate(StreamName=stream)
    return [shard async for page in pages for shard in page["Shards"]]


async def _describe_shard(client: Any, stream: str, shard: str) -> dict[str, Any]:
    """Return one shard as ListShards describes it; raises ServerError when there is none."""
    for each in await _list_shards(client, stream):
        if each["ShardId"] == shard:
            return each
    raise ServerError(f"stream {stream!r} has no shard {shard!r}")


async def _children(client: Any, stream: str, parent: str) -> list[str]:
    """Return the ids of the shards that a split or merge of the shard made."""
    return [
        each["ShardId"]
        for each in await _list_shards(client, stream)
        if parent in (each.get("ParentShardId"), each.get("AdjacentParentShardId"))
    ]


def _hash_keys(shard: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first and the last hash key of a shard."""
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


def _batches(records: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
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


async def _put_batch(
    client: Any, stream: str, batch: list[tuple[str, bytes]], place: dict[str, str]
) -> list[tuple[str, str]]:
    """Put one batch; raises ServerError when not all of it was taken."""
    entries = [{"PartitionKey": key, "Data": data, **place} for key, data in batch]
    answer = await client.put_records(StreamName=stream, Records=entries)
    if answer.get("FailedRecordCount"):
        failed = [each for each in answer["Records"] if "ErrorCode" in each]
        raise ServerError(f"stream {stream!r} did not take {len(failed)} records: {failed[0]}")
    return [(each["ShardId"], each["SequenceNumber"]) for each in answer["Records"]]


REGION = "us-east-1"


class KinesisEndpoint(ABC):
    """A Kinesis that tests can use, started here or elsewhere.

    Each call opens a client and closes it: no connection is left behind in a caller's loop.
    """

    @property
    @abstractmethod
    def endpoint_url(self) -> str:
        """``http://host:port`` for clients."""

    @property
    def region(self) -> str:
        """The region that clients name."""
        return REGION

    @property
    def credentials(self) -> dict[str, str]:
        """Credentials as keyword arguments of a client; the servers take any."""
        return {"aws_access_key_id": "test", "aws_secret_access_key": "test"}

    async def create_stream(self, name: str, shards: int = 1) -> None:
        """Create a stream and wait until it is active.

        Raises:
            ServerError: Kinesis refused, or the stream is not active after two minutes.
            MissingExtraError: aiobotocore is not installed.
        """
        async with self._client() as client:
            await client.create_stream(StreamName=name, ShardCount=shards)
            await _until_active(client, name)

    async def shards(self, stream: str) -> list[dict[str, Any]]:
        """Return all shards, closed ones too, as ListShards describes them.

        Raises:
            ServerError: Kinesis refused.
        """
        async with self._client() as client:
            return await _list_shards(client, stream)

    async def split(self, stream: str, shard: str) -> list[str]:
        """Split a shard in the middle of its hash keys, and return the ids of its children.

        Raises:
            ServerError: Kinesis refused, or the stream is not active after two minutes.
        """
        async with self._client() as client:
            first, last = _hash_keys(await _describe_shard(client, stream, shard))
            await client.split_shard(
                StreamName=stream,
                ShardToSplit=shard,
                NewStartingHashKey=str((first + last + 1) // 2),
            )
            await _until_active(client, stream)
            return await _children(client, stream, shard)

    async def merge(self, stream: str, shard: str, adjacent: str) -> str:
        """Merge two shards with adjacent hash keys, and return the id of their child.

        Raises:
            ServerError: Kinesis refused, or the stream is not active after two minutes.
        """
        async with self._client() as client:
            await client.merge_shards(
                StreamName=stream, ShardToMerge=shard, AdjacentShardToMerge=adjacent
            )
            await _until_active(client, stream)
            (child,) = await _children(client, stream, shard)
            return child

    async def put(
        self, stream: str, records: Iterable[tuple[str, bytes]], *, shard: str | None = None
    ) -> list[tuple[str, str]]:
        """Put records one batch after the other, and return shard and sequence number of each.

        Args:
            stream: where to.
            records: partition key and data of each.
            shard: the shard that gets them all; by default their partition keys decide.

        Raises:
            ServerError: Kinesis refused, or did not take all of a batch.
        """
        async with self._client() as client:
            place = {}
            if shard is not None:
                first, _ = _hash_keys(await _describe_shard(client, stream, shard))
                place = {"ExplicitHashKey": str(first)}
            return [
                taken
                for batch in _batches(records)
                for taken in await _put_batch(client, stream, batch, place)
            ]

    @cached_property
    def _session(self) -> Any:
        # Kept: it reads a large model, for 50 ms and more. A client of it takes 2 ms.
        try:
            from aiobotocore.session import get_session
        except ImportError as error:
            raise MissingExtraError("aiobotocore", "kinesis") from error
        return get_session()

    def _new_client(self) -> Any:
        session = self._session
        from aiobotocore.config import AioConfig

        return session.create_client(
            "kinesis",
            endpoint_url=self.endpoint_url,
            region_name=self.region,
            verify=False,  # plain HTTP: to read the machine's authorities takes longer than a request
            config=AioConfig(
                proxies={},  # those of the environment are not for this machine
                retries={"total_max_attempts": 1},  # a refusal is the answer
            ),
            **self.credentials,
        )

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        """Give a client; its errors leave as ServerError, with Kinesis's own words."""
        client = self._new_client()
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            async with client as opened:
                opened.meta.events.register("before-send.kinesis.PutRecords", _as_stream)
                yield opened
        except (BotoCoreError, ClientError) as error:
            raise ServerError(f"Kinesis at {self.endpoint_url}: {error}") from error


def _as_stream(request: Any, **_: object) -> None:
    # aiohttp warns of more than 1 MiB of bytes, and tests make errors of warnings.
    request.body = BytesIO(request.body)
