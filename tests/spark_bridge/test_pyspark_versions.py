"""Each version of PySpark that people run: the matrix of docs/spark.md."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version as installed
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.testing.servers.cache import cache_folder
from tests.spark_bridge.feeding import messages
from tests.spark_bridge.pull.kafka_query import Kafka, Topic

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
MOST = 10
"""Records of a micro-batch, where the version knows limits."""


def interpreter(version: str) -> Path:
    """A Python with this PySpark before all else that the tests have; made once, and kept."""
    if version == installed("pyspark"):
        return Path(sys.executable)
    folder = cache_folder() / "pyspark" / version
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        uv("venv", "--clear", "--python", sys.executable, str(folder))
        uv("pip", "install", "--compile-bytecode", "--python", str(python), f"pyspark=={version}")
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "tests.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "whole").touch()
    return python


def uv(*arguments: str) -> None:
    """Run it; skip, or fail where everything has to run, when the index does not have the version."""
    command = [str(UV), "--quiet", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        give_up = pytest.fail if os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS") else pytest.skip
        give_up(f"uv {' '.join(arguments)}: {done.stderr.strip()}")


def run(python: Path, *arguments: str) -> dict[str, Any]:
    """What `version_program` prints."""
    command = [str(python), "-m", "tests.spark_bridge.version_program", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
    (tmp_path / "feed").mkdir()
    feed = f"feed://{tmp_path}/feed?maxRowsPerTrigger={MOST}"
    has_limits = version >= "4.2"
    for first, last in ((0, 29), (30, 49)):
        topic.send(last + 1 - first)
        asyncio.run(store(tmp_path / "feed", first, last))
        rows = str(last + 1 - first)
        found = run(python, str(tmp_path), topic.url, feed, rows)
        assert found["version"] == version
        check(found, first, last, has_limits=has_limits)
        assert not has_limits or topic.lag() == 0
    assert found["letters"] == "works"
    for part in ("avro", "letter_stream"):
        wanted = "works" if version >= "4.1" else f"pyspark {version} is installed, and 4.1"
        assert found[part].startswith(wanted)


async def store(directory: Path, first: int, last: int) -> None:
    """Feed these records, in segments of ten."""
    async with SparkFeed(directory, max_wait=0.0) as feed:
        for begin in range(first, last, MOST):
            await feed.write(messages(begin, begin + MOST - 1))
