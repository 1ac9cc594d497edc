"""Kafka's own command line tools and this SDK, on one group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import KafkaServer
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars
from consumer_sdk.testing.servers.java import find_java
from tests.adapters.kafka.harness import KafkaHarness
from tests.runtime.starts.start_cases import Scene

pytestmark = pytest.mark.kafka

TOOLS = JarSet(
    "kafka-tools",
    (
        Artifact(org="org.apache.kafka", name="kafka-tools", revision="4.3.1"),
        Artifact(org="org.apache.logging.log4j", name="log4j-slf4j-impl", revision="2.25.4"),
    ),
)


async def consumer_groups(kafka: KafkaHarness, *arguments: str) -> str:
    """What ``kafka-consumer-groups.sh`` prints."""
    jars = await asyncio.to_thread(resolve_jars, TOOLS)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    process = await asyncio.create_subprocess_exec(
        *(str(find_java()), "-cp", f"{jars}/*", tool),
        *("--bootstrap-server", kafka.servers, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.fixture
async def kafka(kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """The shared Kafka, with names of this test's own."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as kafka:
        yield kafka


@pytest.fixture(params=["none", pytest.param("local", marks=pytest.mark.campaign)])
def scene(request: pytest.FixtureRequest, kafka: KafkaHarness, tmp_path: Path) -> Scene:
    """Without a store, and with one."""
    is_local = request.param == "local"
    return Scene(kafka, partial(LocalStore, tmp_path / "state.db") if is_local else None)


async def test_offsets_that_the_tool_resets_are_honoured_once(
    kafka: KafkaHarness, scene: Scene
) -> None:
    """And what it shows before is the first unsettled record."""
    await scene.prepare()
    await scene.take(6, ack={0, 1, 2, 4})
    described = await consumer_groups(kafka, "--describe", "--group", scene.group())
    (line,) = [line for line in described.splitlines() if scene.stream in line]
    assert line.split()[3:6] == ["3", "10", "7"]  # offset, end, lag

    await consumer_groups(
        kafka,
        *("--group", scene.group(), "--topic", scene.stream),
        *("--reset-offsets", "--to-offset", "2", "--execute"),
    )
    taken, stats = await scene.take(3, ack={2, 4})
    assert (taken, stats.resets) == ([2, 3, 4], int(scene.has_store))
    taken, stats = await scene.take(2)
    assert (taken, stats.resets) == ([3, 5], 0)
