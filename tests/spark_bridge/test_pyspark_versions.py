"""Each version of PySpark that people run: the matrix of docs/spark.md."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version as installed
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.spark_bridge import SparkFeed
from tests.environments import environment, output
from tests.spark_bridge.feeding import messages
from tests.spark_bridge.pull.kafka_query import Kafka, Topic

pytest.importorskip("pyspark")

PROGRAM = "tests.spark_bridge.version_program"
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
MOST = 10
"""Records of a micro-batch, where the version knows limits."""


def interpreter(version: str) -> Path:
    """A Python with this PySpark."""
    if version == installed("pyspark"):
        return Path(sys.executable)
    return environment(f"pyspark/{version}", f"pyspark=={version}")


def names(first: int, last: int) -> list[str]:
    """The records ``first..last`` of partition 0."""
    return [f"0:{offset}" for offset in range(first, last + 1)]


def check(found: dict[str, Any], first: int, last: int, *, has_limits: bool) -> None:
    """Each record was read once by each query, in micro-batches of the size that is known here."""
    assert found["batch"] == found["rejected"] == last + 1
    for name in ("kafka", "feed"):
        for way in (name, f"{name}_followed"):
            assert list(chain.from_iterable(found[way])) == names(first, last), way
            if has_limits:
                assert {len(batch) for batch in found[way]} == {MOST}, way
        if not has_limits:
            assert len(found[name]) == 1


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("version", VERSIONS)
def test_pull_and_feed_read_each_record_once_on_each_pyspark(
    version: str, kafka_server: Kafka, tmp_path: Path
) -> None:
    """Two runs with the same checkpoints, ``availableNow`` and the default trigger, pull and feed."""
    python = interpreter(version)
    topic = Topic(kafka_server, f"versions-{version}", partitions=1)
    Topic(kafka_server, f"versions-{version}-copy", partitions=1)
    (tmp_path / "feed").mkdir()
    feed = f"feed://{tmp_path}/feed?maxRowsPerTrigger={MOST}"
    has_limits = version >= "4.2"
    for first, last in ((0, 29), (30, 49)):
        topic.send(last + 1 - first)
        asyncio.run(store(tmp_path / "feed", first, last))
        found = json.loads(output(python, PROGRAM, str(tmp_path), topic.url, feed))
        assert found["version"] == version
        check(found, first, last, has_limits=has_limits)
        assert not has_limits or topic.lag() == 0
    # The batch copied 30 records and then all 50, the stream each record once.
    assert found["copied"] == 30 + 50 + 50
    assert found["letters"] == "works"
    for part in ("avro", "rescued", "letter_stream"):
        wanted = "works" if version >= "4.1" else f"pyspark {version} is installed, and 4.1"
        assert found[part].startswith(wanted)


async def store(directory: Path, first: int, last: int) -> None:
    """Feed these records, in segments of ten."""
    async with SparkFeed(directory, max_wait=0.0) as feed:
        for begin in range(first, last, MOST):
            await feed.write(messages(begin, begin + MOST - 1))
