"""docs/tutorial.md: what it shows is what its programs print."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from consumer_sdk.cli import main
from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.docs.pages import Page
from tests.examples.running import held_port
from tests.spark_bridge.spark_home import link_spark

PAGE = Page("tutorial")
EXPLAIN = "consumer-sdk explain 'kafka://127.0.0.1:9092/tutorial?group=tutorial'"


def test_memory_prints_what_the_page_shows() -> None:
    """Two orders are charged, one of them at its second delivery; one is a dead letter."""
    shown = PAGE.shown("python memory.py")
    with PAGE.running("python memory.py") as memory:
        assert memory.until_interrupted(shown) == shown


@pytest.fixture(scope="module")
def kafka(kafka_server: KafkaServer) -> str:
    """The address of a Kafka with the ten orders."""
    servers = kafka_server.bootstrap_servers
    assert PAGE.printed("python send.py", KAFKA=servers) == PAGE.shown("python send.py")
    return servers


@pytest.mark.kafka
def test_killed_service_leaves_one_order_for_the_next(
    kafka: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine orders are charged; the page and the command name the tenth, which the next service charges."""
    _charge_all_but_one(kafka, capsys)
    asyncio.run(_end_sessions(kafka))
    shown = PAGE.shown("python service.py")
    with held_port() as port, PAGE.running("python service.py", **_at(kafka, port)) as service:
        assert service.until_interrupted(shown) == shown


def _charge_all_but_one(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = "python service.py 3"
    with held_port() as port, PAGE.running(command, **_at(kafka, port)) as service:
        assert service.lines(9) == PAGE.shown(command)
        assert _pinned(port) == ("3", "running")
        _wait_for_acks(kafka, capsys)
        service.kill()


def _wait_for_acks(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Until they are durable, which the command shows as the page does."""
    wanted = _without_age(PAGE.shown(EXPLAIN))
    for _ in range(100):
        explained = _without_age(_explained(kafka, capsys))
        if explained == wanted:
            return
    assert explained == wanted


def _at(kafka: str, port: str) -> dict[str, str]:
    return {"KAFKA": kafka, "PAGE": f"127.0.0.1:{port}"}


def _pinned(port: str) -> tuple[str, str]:
    """The position that the live page says is pinned, and why."""
    with urlopen(f"http://127.0.0.1:{port}/api/snapshot") as answer:
        (consumer,) = json.load(answer)["consumers"]
    (partition,) = consumer["partitions"]
    return partition["pinned"]["position"], partition["pinned"]["state"]


def _explained(kafka: str, capsys: pytest.CaptureFixture[str]) -> str:
    url = EXPLAIN.split("'")[1].replace("127.0.0.1:9092", kafka)
    assert main(["explain", url]) == 0
    return capsys.readouterr().out


def _without_age(line: str) -> str:
    return re.sub(r"[\d.]+ s old", "old", line)


async def _end_sessions(kafka: str) -> None:
    async with KafkaHarness(kafka) as harness:
        await harness.end_sessions("tutorial")


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.campaign
def test_totals_prints_what_the_page_shows(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both customers' amounts."""
    monkeypatch.chdir(tmp_path)  # Spark leaves files
    monkeypatch.setenv("SPARK_HOME", str(link_spark(tmp_path / "spark")))
    assert PAGE.printed("python totals.py", KAFKA=kafka) == PAGE.shown("python totals.py")
