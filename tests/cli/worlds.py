"""Streams of real brokers for the commands that look at them from outside, each by its URL."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from consumer_sdk.adapters.urls import open_for_tools
from consumer_sdk.dead_letters.resending import resending_to
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import DeadLetter, Partition, StartPoint
from tests.cli.groups.test_checkpoints import status_of

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer, KinesisServer, PulsarServer

__all__ = ["World", "golden", "kafka_world", "letter_of", "status", "world_of"]


@dataclass(frozen=True, slots=True)
class World:
    """A broker's server as URLs have it.

    Attributes:
        base: scheme and server.
        options: of each URL.
        partition: the id of a stream's first one.
    """

    server: Any
    base: str
    options: dict[str, str]
    partition: str

    def url(self, stream: str = "", **more: str) -> str:
        """Of a stream."""
        name = stream.rpartition("/")[2]
        return f"{self.base}/{name}?{urlencode(self.options | more)}"

    def writing_url(self, stream: str) -> str:
        """The same for whoever writes, who has no use for the REST API."""
        options = {name: text for name, text in self.options.items() if name != "admin_url"}
        return f"{self.base}/{stream.rpartition('/')[2]}?{urlencode(options)}"

    async def stream(self, partitions: int = 1) -> str:
        """The name of a new one, as consumers have it."""
        name = f"orders-{uuid.uuid4().hex[:8]}"
        if self.base.startswith("kinesis"):
            await self.server.create_stream(name, partitions)
            return name
        await self.server.create_topic(name, partitions)
        return f"persistent://public/default/{name}" if self.base.startswith("pulsar") else name

    async def write(self, stream: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Key and value of each record, one after another."""
        to = resending_to(self.writing_url(stream))
        await to.open()
        letters = [letter_of((stream, self.partition, at), *row) for at, row in enumerate(records)]
        outcomes = [outcome for letter in letters for outcome in await to.send([letter])]
        await to.aclose()
        assert all(outcome.is_done for outcome in outcomes), outcomes

    async def read(self, stream: str) -> list[tuple[bytes | None, bytes | None, Any]]:
        """Key, value and headers of all records of a stream."""
        reader, _ = open_for_tools(self.url(stream))
        await reader.open()
        try:
            partitions = await reader.partitions()
            first = await reader.positions(partitions, StartPoint.EARLIEST)
            ends = await reader.positions(partitions, StartPoint.LATEST)
            rows: list[tuple[bytes | None, bytes | None, Any]] = []
            for each in partitions:
                wanted = PartitionRange(each, first[each], ends[each])
                async for columns in reader.read_range(wanted, with_headers=True):
                    headers = columns.headers or [()] * len(columns)
                    rows += zip(columns.keys, columns.values, map(list, headers), strict=True)
            return rows
        finally:
            await reader.aclose()


def letter_of(
    at: tuple[str, str, int], key: bytes, value: bytes, error: str = "ValueError"
) -> DeadLetter:
    """One of a stream, a partition and a number, given up at the second of that."""
    stream, partition, number = at
    return DeadLetter(
        partition=Partition(stream, partition),
        position=str(number),
        key=key,
        value=value,
        headers=[],
        timestamp=1_600_000_000_000,
        error=f"{error}: no {number}",
        error_type=f"app.{error}",
        attempts=5,
        group="billing",
        failed_at=1_700_000_000.0 + number,
    )


async def status(*command: str) -> int:
    """The exit status of a command, which has an event loop of its own."""
    return await asyncio.to_thread(status_of, list(command))


def kafka_world(server: KafkaServer) -> World:
    """Kafka."""
    return World(server, f"kafka://{server.bootstrap_servers}", {}, "0")


def pulsar_world(server: PulsarServer) -> World:
    """Pulsar, with its REST API."""
    return World(server, server.service_url, {"admin_url": server.admin_url}, "0")


def kinesis_world(server: KinesisServer) -> World:
    """Kinesis."""
    options = {"endpoint_url": server.endpoint_url, **server.credentials}
    return World(server, f"kinesis://{server.region}", options, "shardId-000000000000")


_WORLDS: dict[str, tuple[str, Callable[[Any], World]]] = {
    "kafka": ("kafka_server", kafka_world),
    "pulsar": ("pulsar_server", pulsar_world),
    "kinesis": ("kinesis_server", kinesis_world),
}


def world_of(request: pytest.FixtureRequest, broker: str) -> World:
    """A broker's, with its shared server; of a fixture that is no coroutine, as a server's start is not."""
    server, make = _WORLDS[broker]
    return make(request.getfixturevalue(server))


TIMES = re.compile(r"\d{4}-\d\d-\d\dT[0-9:]+Z|\b[0-9.e+]+ s\b")


def golden(name: str, out: str, names: dict[str, str]) -> None:
    """What was written is what stands in the file, but for names and times of this run."""
    for mine, theirs in names.items():
        out = out.replace(mine, theirs)
    text = TIMES.sub("TIME", out)
    file = Path(__file__).parent / "golden" / name
    if os.environ.get("CONSUMER_SDK_GOLDEN"):  # writes it anew; read the difference
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
