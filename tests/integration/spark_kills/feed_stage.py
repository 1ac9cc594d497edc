"""Kafka, consumed by a process that feeds a directory, which Spark reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.index import IntervalSet
from consumer_sdk.spark_bridge.feed.manifest_log import ManifestLog
from tests.integration.spark_kills.driver import ROOT
from tests.integration.spark_kills.kafka_stage import Kafka, KafkaStage

__all__ = ["FeedStage"]


class FeedStage(KafkaStage):
    """The group is the consumer's; it may stand no further than what the feed has durably.

    Args:
        server: the Kafka.
        topic: a name of the test's own.
        directory: the feed's.
    """

    options: Mapping[str, str] = {}

    def __init__(self, server: Kafka, topic: str, directory: Path) -> None:
        super().__init__(server, topic)
        directory.mkdir()
        self.url = f"feed://{directory}?retention=committed&reader=kills"
        self._directory = directory
        self._log = ManifestLog(PosixFiles(directory))
        self._next_manifest = 0
        self._fed: dict[str, IntervalSet] = {}
        self._consumer: subprocess.Popen[bytes] | None = None

    @property
    def deleted(self) -> int:
        """How many segments are no longer kept."""
        return self._log.floor()

    async def open(self) -> None:
        await super().open()
        self._start()

    async def aclose(self) -> None:
        self._end()
        await super().aclose()

    async def kill(self, target: str) -> None:
        assert target == "consumer"
        self._end()
        self._start()

    def done(self, checkpoint: Path) -> Mapping[str, Any]:
        """How far each partition is in the feed without a gap."""
        self._look()
        return {partition: _end_of_first(found) for partition, found in self._fed.items()}

    def _look(self) -> None:
        floor = self._log.floor()
        assert floor <= self._next_manifest or not self._next_manifest, "deleted before it was seen"
        for manifest in self._log.news(self._next_manifest):
            self._next_manifest = manifest.number + 1
            for text, ranges in manifest.ranges.items():
                fed = self._fed.setdefault(Partition.parse(text).id, IntervalSet())
                for each in ranges:
                    fed.add(*each)

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.integration.spark_kills.feed_consumer"]
        command += [self.servers, self.topic, self.topic, str(self._directory)]
        self._consumer = subprocess.Popen(command, cwd=ROOT)

    def _end(self) -> None:
        if self._consumer is not None:
            assert self._consumer.poll() is None, "the consumer ended by itself"
            self._consumer.kill()
            self._consumer.wait()
            self._consumer = None


def _end_of_first(found: IntervalSet) -> int:
    """What follows the records from the first one on that are there without a gap."""
    first, last = next(iter(found))
    return last + 1 if first == 0 else 0
