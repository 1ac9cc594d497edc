"""Spark Connect: a client that has neither Spark nor its context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_sdk import spark_bridge
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing.servers.ports import free_ports
from tests.spark_bridge.pull.kafka_query import Kafka, Topic

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("connect_program.py")


class Client:
    """A session that says no more than one of Spark Connect."""

    def __init__(self) -> None:
        self.dataSource = SimpleNamespace(register=lambda _source: None)
        self.given: dict[str, str] = {}

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        """Fail as Spark does."""
        raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] Attribute `sparkContext`")

    @property
    def read(self) -> Any:
        """Remember the options."""
        options = SimpleNamespace(load=lambda: None)

        def take(**given: str) -> Any:
            self.given = given
            return options

        return SimpleNamespace(format=lambda _name: SimpleNamespace(options=take))


def test_a_session_without_a_context_is_enough() -> None:
    """Options are checked; secrets and the broker's client are looked for where Spark runs."""
    client: Any = Client()
    url = "kafka://127.0.0.1:1/t?sasl_plain_password=env:NOT_HERE"
    spark_bridge.read(client, url, startingOffsets={"t": {0: 1}})
    assert client.given == {"url": url, "startingOffsets": '{"t": {"0": 1}}'}
    with pytest.raises(ConfigurationError, match="did you mean startingOffsets"):
        spark_bridge.read(client, url, startingOffset="earliest")


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.kafka
def test_programs_on_spark_connect_read_all_records(kafka_server: Kafka, tmp_path: Path) -> None:
    """On a real server, in a process of its own: batches, tables and streams."""
    pytest.importorskip("grpc")
    topic = Topic(kafka_server, "spark-connect")
    topic.send(10)
    port = str(free_ports(1)[0])
    program = [sys.executable, str(PROGRAM)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    pipes: Any = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    serve = [*program, "serve", port, str(tmp_path)]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, **pipes) as server:
        assert server.stdout is not None
        assert server.stdout.readline().strip() == "ready"
        read = [*program, "read", port, str(tmp_path), topic.url]
        done = subprocess.run(read, check=True, timeout=600, **pipes)
        server.communicate("", timeout=120)
    assert json.loads(done.stdout) == {"read": 10, "load": 10, "table": 10, "stream": 10}
