"""Programs of README.md and docs that read Kafka in Spark, on the session that all tests share."""

from __future__ import annotations

import json
import re
import runpy
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client import CollectorRegistry, generate_latest

from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page
from tests.docs.test_readme import AMOUNTS, send_orders
from tests.schema_registry.registry_server import running
from tests.spark_bridge.pull.kafka_query import ON_SPARK, complete
from tests.spark_bridge.test_checkpoint_import import kafkas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka, pytest.mark.usefixtures("spark")]


def run(page: Page, file: str, server: KafkaServer) -> dict[str, Any]:
    """What a program of a page defines; it gets the session that there is."""
    code = (page.snippets / file).read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA", server.bootstrap_servers)
        names: dict[str, Any] = {}
        exec(compile(code, file, "exec"), names)  # noqa: S102 - our own page
    return names


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


@pytest.mark.campaign
def test_queries_of_the_page_run_together(
    kafka_server: KafkaServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of orders_queries.py: one that only reads, one that decodes, one that is counted."""
    complete(send_orders(kafka_server, "spark-orders"))
    monkeypatch.setattr("prometheus_client.REGISTRY", registry := CollectorRegistry())
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path / "checkpoints"))
    names = {"/orders?": "/spark-orders?", "max": 'startingOffsets="earliest", max'}
    made = run(Page("spark").copied(tmp_path, names), "orders_queries.py", kafka_server)
    try:
        for query in spark.streams.active:
            query.processAllAvailable()
        assert 'query="orders"' in generate_latest(registry).decode()
    finally:
        for query in spark.streams.active:
            query.stop()
        made["queries"].close()


def test_values_are_decoded_by_the_registrys_schema(spark: SparkSession, tmp_path: Path) -> None:
    """By registry_values.py, from a registry of the test's own."""
    url = "https://registry:8081?username=reader&password=env:REGISTRY_PASSWORD"
    with running() as server:
        field = {"name": "id", "type": "long"}
        server.add(7, {"type": "record", "name": "Order", "fields": [field]})
        page = Page("spark").copied(tmp_path, {url: server.url})
        made = runpy.run_path(str(page.snippets / "registry_values.py"))
        rows = spark.createDataFrame([(bytearray(b"\0\0\0\0\x07\x02"),)], "value BINARY")
        (row,) = made["orders_of"](rows).select("decoded", "reason").collect()
    assert (row.decoded.id, row.reason) == (1, None)


@pytest.mark.campaign
def test_feed_of_the_page_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """write_feed.py writes it, and read_feed.py counts its five records."""
    Page("feed").printed(f"python write_feed.py {tmp_path}")
    monkeypatch.setenv("FEED", str(tmp_path))
    runpy.run_path(str(Page("feed").snippets / "read_feed.py"))
    assert "orders 5\n" in capfd.readouterr().out
