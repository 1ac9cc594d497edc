"""The options of the sink."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.producing.writing import KafkaWriter
from consumer_sdk.adapters.pulsar.writing import PulsarWriter
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.sources import WRITES
from consumer_sdk.spark_bridge.sink.options import SinkOptions

SERVERS = {"kafka.bootstrap.servers": "PLAINTEXT://127.0.0.1:1,127.0.0.1:2"}
VALUES = {
    "kafka.acks": "all",
    "kafka.compression.type": "none",
    "kafka.enable.idempotence": "true",
}
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=s3cret;"
)


@pytest.mark.parametrize(
    "options",
    [
        {name: VALUES.get(name, "1500") for name in WRITES},
        {"kafka.acks": "1", "kafka.compression.type": "zstd"},
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": LOGIN,
        },
        {"kafka.linger.ms": "5", "kafka.retries": "3", "checkpointLocation": "/c"},
    ],
)
def test_kafkas_writer_takes_every_setting(options: dict[str, str]) -> None:
    """It is made, with each of them, and opens nothing; options travel, and show no secret."""
    found = SinkOptions.parse(SERVERS | options)
    assert isinstance(found.open_writer(), KafkaWriter)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own
    assert hash(found.identity()) == hash(SinkOptions.parse(SERVERS | options).identity())
    assert "s3cret" not in repr(found)


def test_a_url_names_broker_topic_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is looked up where the writer is made."""
    kafka = SinkOptions.parse({"url": "kafka://h:9092/orders?acks=1&compression_type=lz4"})
    assert kafka.topic == "orders"
    assert isinstance(kafka.open_writer(), KafkaWriter)
    pulsar = SinkOptions.parse({"url": "pulsar://h:6650/orders?token=env:TOKEN", "topic": "orders"})
    assert pulsar.topic == "orders"
    with pytest.raises(ConfigurationError, match="no environment variable 'TOKEN'"):
        pulsar.open_writer()
    monkeypatch.setenv("TOKEN", "s3cret")
    assert isinstance(pulsar.open_writer(), PulsarWriter)
    assert SinkOptions.parse({"url": "kafka://h:9092"}).topic is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, r"kafka.bootstrap.servers is missing: give host:port"),
        (
            {"url": "kafka://h:1/t", "kafka.acks": "1"},
            r"url and kafka.acks: the URL says it all; give one of the two",
        ),
        (
            {"url": "kafka://h:1/a", "topic": "b"},
            r"topics 'b', 'a': give one, as the option topic or in the URL; for several leave both",
        ),
        ({"url": "kafka://h:1/a,b"}, r"topics 'a', 'b': give one"),
        ({"url": "feed:///d"}, r"a feed is written by consumers, with a SparkFeed"),
        ({"url": "kinesis://r/s"}, r"kinesis: rows are written to Kafka and Pulsar: give kafka://"),
        (SERVERS | {"topik": "t"}, r"unknown option topik: did you mean topic\?"),
        (SERVERS | {"topic": " "}, r"topics ' ': give one"),
        (SERVERS | {"includeHeaders": "yes"}, r"includeHeaders='yes': give one of true, false"),
        (SERVERS | {"kafka.acks": "0"}, r"kafka.acks='0': give one of all, -1, 1"),
        (SERVERS | {"kafka.compression.type": "lzo"}, r"kafka.compression.type='lzo': give one of"),
        (SERVERS | {"kafka.max.request.sise": "1"}, r"did you mean kafka.max.request.size\?"),
        (SERVERS | {"kafka.group.id": "g"}, r"unknown option kafka.group.id"),
        (
            SERVERS | {"kafka.transactional.id": "t"},
            r"kafka.transactional.id cannot be set: rows are written at least once",
        ),
        (
            SERVERS | {"kafka.value.serializer": "x"},
            r"kafka.value.serializer cannot be set: the column value is binary or a string",
        ),
        (
            SERVERS | {"kafka.partitioner.class": "x"},
            r"kafka.partitioner.class cannot be set: give a column partition",
        ),
        (
            SERVERS | {"kafka.interceptor.classes": "x"},
            r"kafka.interceptor.classes cannot be set: Java classes do not run here",
        ),
        (SERVERS | {"kafka.sasl.kerberos.service.name": "x"}, r"Kerberos cannot be used here"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(options: dict[str, str], message: str) -> None:
    """Before Spark runs anything."""
    with pytest.raises(ConfigurationError, match=message):
        SinkOptions.parse(options)


@pytest.mark.parametrize(
    "url, message",
    [
        ("kafka://h:1/t?group=g", "group"),
        ("kafka://h:1/t?transactional_id=x", "transactional_id= is not for you to set here"),
        ("kafka://h:1/t?acks=0", "acks=0: give 'all' or 1"),
        ("kafka://h:1/t?delivery_timeout=0", "delivery_timeout=0.0: give seconds"),
        ("pulsar://h:1/t?batching=no", "batching='no'.*'default', 'key'"),
        ("pulsar://h:1/t?batch=key", "batch="),
    ],
)
def test_a_url_whose_options_cannot_work_is_refused(url: str, message: str) -> None:
    """Where the writer is made."""
    with pytest.raises(ConfigurationError, match=message):
        SinkOptions.parse({"url": url}).open_writer()


def test_idempotence_goes_with_acks_of_all_replicas() -> None:
    """As Java's producer has it: on, unless acks=1 is asked for."""

    def made(**settings: str) -> Any:
        given = {f"kafka.{name}": text for name, text in settings.items()}
        return SinkOptions.parse(SERVERS | given).open_writer()

    assert made()._options["enable_idempotence"] is True
    assert made(acks="-1")._options["enable_idempotence"] is True
    assert made(acks="1")._options["enable_idempotence"] is False
