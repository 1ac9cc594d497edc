"""What tests do with a Kinesis that was started here or elsewhere."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cached_property
from io import BytesIO
from typing import Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.errors import ServerError
from consumer_sdk.testing.servers.kinesis_calls import (
    batches,
    children,
    describe_shard,
    hash_keys,
    list_shards,
    put_batch,
    until_active,
)

__all__ = ["REGION", "KinesisEndpoint"]

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
            await until_active(client, name)

    async def shards(self, stream: str) -> list[dict[str, Any]]:
        """Return all shards, closed ones too, as ListShards describes them.

        Raises:
            ServerError: Kinesis refused.
        """
        async with self._client() as client:
            return await list_shards(client, stream)

    async def split(self, stream: str, shard: str) -> list[str]:
        """Split a shard in the middle of its hash keys, and return the ids of its children.

        Raises:
            ServerError: Kinesis refused, or the stream is not active after two minutes.
        """
        async with self._client() as client:
            first, last = hash_keys(await describe_shard(client, stream, shard))
            await client.split_shard(
                StreamName=stream,
                ShardToSplit=shard,
                NewStartingHashKey=str((first + last + 1) // 2),
            )
            await until_active(client, stream)
            return await children(client, stream, shard)

    async def merge(self, stream: str, shard: str, adjacent: str) -> str:
        """Merge two shards with adjacent hash keys, and return the id of their child.

        Raises:
            ServerError: Kinesis refused, or the stream is not active after two minutes.
        """
        async with self._client() as client:
            await client.merge_shards(
                StreamName=stream, ShardToMerge=shard, AdjacentShardToMerge=adjacent
            )
            await until_active(client, stream)
            (child,) = await children(client, stream, shard)
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
                first, _ = hash_keys(await describe_shard(client, stream, shard))
                place = {"ExplicitHashKey": str(first)}
            return [
                taken
                for batch in batches(records)
                for taken in await put_batch(client, stream, batch, place)
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
