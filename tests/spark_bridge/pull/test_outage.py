"""Nobody listens for more than half a minute: a query ends with a clear error, or waits for as long as it was told to."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.integration.faults.fault_proxy import Fault, FaultProxy, kafka_addresses
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Sink, Topic, until
from tests.spark_bridge.pull.trap_query import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka, pytest.mark.campaign(minutes=2)]

USUAL = 30.0
"""Seconds that a query waits by default."""
PATIENCE = 300.0


class Line:
    """A proxy in front of a broker, in a thread of its own."""

    def __init__(self, server: str) -> None:
        self._proxy = FaultProxy(server, kafka_addresses)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        """What Spark is given."""
        return self._proxy.address

    def become(self, fault: Fault) -> None:
        """The line is like this from now on."""
        asyncio.run_coroutine_threadsafe(self._proxy.become(fault), self._loop).result(PATIENCE)


def eventually(claim: Callable[[], bool]) -> None:
    """Waits until it is true."""
    deadline = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.2)


def test_outage_of_over_half_a_minute_is_outlived_by_the_query_that_was_told_to_wait(
    spark: SparkSession, kafka_server: Kafka, tmp_path: Path
) -> None:
    """The other one names the time that it has waited, and the option that makes it wait longer."""
    topic = Topic(kafka_server, f"outage-{uuid.uuid4().hex[:8]}")
    topic.send(20)

    def reading(name: str, **options: str) -> Sink:
        servers = {"kafka.bootstrap.servers": line.address, "group": f"{topic.name}-{name}"}
        return Sink(frame_of(spark, topic, **servers, **options), tmp_path / name)

    with Line(topic.servers) as line:
        told, usual = reading("told", maxOutage="10m"), reading("usual")
        waiting, ending = told.start(), usual.start()
        until(lambda: told.rows == topic.expected, waiting)
        until(lambda: usual.rows == topic.expected, ending)

        line.become(Fault.REFUSED)
        began = time.monotonic()
        topic.send(20)
        eventually(lambda: not ending.isActive)
        took, error = time.monotonic() - began, str(ending.exception())
        assert took > USUAL
        assert "the broker has not answered for 30 s" in error
        assert "start the query again" in error
        assert "option maxOutage" in error

        assert waiting.isActive, waiting.exception()
        line.become(Fault.NONE)
        until(lambda: told.rows == topic.expected, waiting)
        usual.run()  # it is started again, as the error says, and goes on where it was
        assert usual.rows == topic.expected
        waiting.stop()
    print(f"an outage of {took:.0f} s, which one query has outlived")  # noqa: T201 - what a campaign was run for
    assert told.repeated == usual.repeated == {}
