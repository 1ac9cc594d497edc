"""What the tests of traps need besides a topic and a sink."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark_bridge.pull.kafka_query import Sink, Topic, complete

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "RUNNER",
    "WORKER",
    "Before",
    "delete_before",
    "frame_of",
    "group_positions",
    "move_group",
    "spark_processes",
    "until_acked",
    "with_admin",
]

RUNNER = "python_streaming_source_runner"
WORKER = "daemon pyspark.worker"  # also of `warm_daemon`


def frame_of(spark: SparkSession, topic: Topic, name: str = "", **options: str) -> DataFrame:
    """A stream of a topic from its first record, by the options of Spark's own source."""
    reader = spark.readStream.name(name) if name else spark.readStream
    settings = {
        "kafka.bootstrap.servers": topic.servers,
        "subscribe": topic.name,
        "group": topic.name,
        "startingOffsets": "earliest",
        **options,
    }
    return reader.format("consumer_sdk").options(**settings).load()


class Before(Sink):
    """A sink before whose batches something happens, once: after Spark has planned one."""

    happening: Callable[[], None] | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Take a micro-batch."""
        happening, self.happening = self.happening, None
        if happening is not None:
            happening()
        super().__call__(frame, number)


def with_admin(topic: Topic, work: Callable[[AIOKafkaAdminClient], Any]) -> None:
    """Have an admin client do something to the topic."""

    async def do() -> None:
        from aiokafka.admin import AIOKafkaAdminClient

        admin = AIOKafkaAdminClient(bootstrap_servers=topic.servers)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    complete(do())


def delete_before(topic: Topic, offsets: Mapping[int, int]) -> None:
    """Have the broker forget a partition's records below an offset."""
    from aiokafka import TopicPartition
    from aiokafka.admin import RecordsToDelete

    wanted = {TopicPartition(topic.name, p): RecordsToDelete(at) for p, at in offsets.items()}
    with_admin(topic, lambda admin: admin.delete_records(wanted))


async def _with_member(topic: Topic, work: Callable[[Any, list[Any]], Any]) -> Any:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partitions = [TopicPartition(topic.name, each) for each in range(topic.partitions)]
    async with AIOKafkaConsumer(
        bootstrap_servers=topic.servers, group_id=topic.name, enable_auto_commit=False
    ) as consumer:
        consumer.assign(partitions)
        return await work(consumer, partitions)


def group_positions(topic: Topic) -> list[int]:
    """Where the group stands in each partition; 0 where it has no position."""

    async def positions(consumer: Any, partitions: list[Any]) -> list[int]:
        return [await consumer.committed(each) or 0 for each in partitions]

    found: list[int] = complete(_with_member(topic, positions))
    return found


def until_acked(topic: Topic, seconds: float = 300.0) -> None:
    """Wait until the group stands at the end: a run's last ack may come while its process ends."""
    deadline = time.monotonic() + seconds
    while lag := topic.lag():
        assert time.monotonic() < deadline, f"the group is {lag} records behind"


def move_group(topic: Topic, offset: int) -> None:
    """Set the group's position in each partition, back or forth, as an operator would."""

    async def move(consumer: Any, partitions: list[Any]) -> None:
        await consumer.commit(dict.fromkeys(partitions, offset))

    complete(_with_member(topic, move))


def spark_processes(kind: str) -> list[int]:
    """The Python processes of one kind that this process' Spark has; no daemons."""
    found = [pid for pid in _pids() if kind in _command(pid) and os.getpid() in _ancestors(pid)]
    # Workers are forked from a daemon, whose command line they keep.
    return found if kind != WORKER else [pid for pid in found if _parent(pid) in found]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""  # it has ended meanwhile


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # likewise


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = _parent(pid)
        found.append(pid)
    return found
