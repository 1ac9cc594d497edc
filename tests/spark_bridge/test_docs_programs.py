"""Programs of README.md and docs that read Kafka in Spark, on the session that all tests share."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page
from tests.docs.test_readme import AMOUNTS, send_orders
from tests.spark_bridge.pull.kafka_query import ON_SPARK, complete
from tests.spark_bridge.test_checkpoint_import import kafkas

pytestmark = [*ON_SPARK, pytest.mark.kafka, pytest.mark.usefixtures("spark")]


def run(page: Page, file: str, server: KafkaServer) -> None:
    """A program of a page; it gets the session that there is."""
    code = (page.snippets / file).read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA", server.bootstrap_servers)
        exec(compile(code, file, "exec"), {})  # noqa: S102 - our own page


def test_totals_of_the_readme_are_those_of_the_orders(
    kafka_server: KafkaServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of each customer, by spark_totals.py."""
    complete(send_orders(kafka_server, "readme-totals"))
    page = Page("readme").copied(tmp_path, {"/orders": "/readme-totals"})
    run(page, "spark_totals.py", kafka_server)
    rows = re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", capfd.readouterr().out)
    assert dict(rows) == {name: str(sum(amounts)) for name, amounts in AMOUNTS.items()}


def test_query_goes_on_where_the_one_on_sparks_source_was(
    kafka_server: KafkaServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old one had committed the first two of four orders; query.py reads the others, once."""
    complete(_send(kafka_server))
    old = kafkas(tmp_path / "billing", {0: '{"from-spark-kafka":{"0":2}}'}, 0)
    (old / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path))
    for orders in (["order 2", "order 3"], []):
        run(Page("from-spark-kafka"), "query.py", kafka_server)
        assert re.findall(r"order \d", capfd.readouterr().out) == orders


async def _send(server: KafkaServer) -> None:
    await server.create_topic("from-spark-kafka", partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
        for number in range(4):
            await producer.send_and_wait("from-spark-kafka", b"order %d" % number)
