"""A topic on a real Pulsar, whose values say where they are, and queries of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from consumer_sdk import spark_bridge
from consumer_sdk.testing.servers.pulsar.endpoint import call, path_of
from tests.spark_bridge.pull import kafka_query
from tests.spark_bridge.pull.kafka_query import complete

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from consumer_sdk.testing.servers import PulsarEndpoint

__all__ = ["PulsarTopic", "until"]

WHERE = (
    "int(split(cast(value as string), ':')[0]) as partition",
    "bigint(split(cast(value as string), ':')[1]) as offset",
)
"""What a value says; Pulsar's own positions are no numbers."""


class PulsarTopic:
    """A topic and a subscription ``g`` of the test's own; nothing else keeps what is sent.

    Args:
        server: where.
        name: in ``public/default``.
        partitions: how many.
    """

    def __init__(self, server: PulsarEndpoint, name: str, partitions: int = 2) -> None:
        self.server = server
        self.name = name
        self.stream = f"persistent://public/default/{name}"
        self.counts = [0] * partitions
        complete(server.create_topic(name, partitions))

    def url(self, *, admin: bool = True, **options: Any) -> str:
        """What `read_stream` takes."""
        known = {"admin_url": self.server.admin_url} if admin else {}
        query = urlencode({"subscription": "g"} | known | options)
        return f"pulsar://{urlsplit(self.server.service_url).netloc}/{self.name}?{query}"

    def stream_of(
        self, spark: SparkSession, *, admin: bool = True, url: Any = (), **options: Any
    ) -> DataFrame:
        """A stream from the earliest record on, for `Sink`."""
        made = self.url(admin=admin, **dict(url))
        frame = spark_bridge.read_stream(spark, made, **{"startingOffsets": "earliest"} | options)
        return frame.selectExpr(*WHERE)

    @property
    def expected(self) -> list[tuple[int, int]]:
        """Every (partition, number) that was sent."""
        return [(p, number) for p, count in enumerate(self.counts) for number in range(count)]

    def send(self, count: int, *, batch: bool = True) -> None:
        """So many records to each partition; a value says where it is."""
        for partition, before in enumerate(self.counts):
            values = [b"%d:%d" % (partition, before + each) for each in range(count)]
            part = f"{self.stream}-partition-{partition}"
            complete(self.server.produce(part, values, batch=batch))
            self.counts[partition] += count

    def grow(self) -> None:
        """One more partition."""
        self.counts.append(0)
        path = f"{path_of(self.stream)}/partitions"
        call(self.server.admin_url, "POST", path, len(self.counts))

    def unload(self) -> None:
        """As a move to another broker does; each partition gets a new ledger."""
        complete(self.server.unload(self.name))

    def trim(self) -> None:
        """Has the broker delete what no subscription keeps."""
        for partition in range(len(self.counts)):
            path = path_of(f"{self.stream}-partition-{partition}")
            call(self.server.admin_url, "POST", f"{path}/trim")

    def lose(self) -> None:
        """Has the broker delete all that was sent; returns when it is gone."""
        for partition in range(len(self.counts)):
            path = path_of(f"{self.stream}-partition-{partition}")
            call(self.server.admin_url, "DELETE", f"{path}/subscription/g?force=true")
        self.unload()
        while self._entries():
            self.trim()

    def _entries(self) -> int:
        found = call(
            self.server.admin_url, "GET", f"{path_of(self.stream)}/partitioned-internalStats"
        )
        return sum(each["numberOfEntries"] for each in found["partitions"].values())

    def backlog(self) -> int:
        """Entries that the subscription has not acked."""
        return complete(self.server.backlog(self.name, "g"))

    def until_acked(self, seconds: float = 300.0) -> None:
        """Waits until there is none: a run's last ack may come while its process ends."""
        deadline = time.monotonic() + seconds
        while backlog := self.backlog():
            assert time.monotonic() < deadline, f"{backlog} entries are not acked"


until = kafka_query.until
