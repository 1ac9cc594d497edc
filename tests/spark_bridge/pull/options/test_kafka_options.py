"""The option names of Spark's own Kafka source."""

from __future__ import annotations

import pickle

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.sources import CLIENT, KafkaSource

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"}
TOPIC = SERVERS | {"subscribe": "orders"}
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=s3cret;"
)
SECURE = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": LOGIN,
}


OAUTH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "saslTokenProvider": "os:getcwd",
}


@pytest.mark.parametrize(
    "options, arguments",
    [
        ({"subscribe": "a, b"}, {"topics": ("a", "b")}),
        ({"subscribePattern": "a"}, {"pattern": "a", "whole_names": False}),
        ({"assign": '{"b":[1],"a":[2,0]}'}, {"partitions": {"a": (0, 2), "b": (1,)}}),
    ],
)
def test_topics_are_chosen_as_in_spark(
    options: dict[str, str], arguments: dict[str, object]
) -> None:
    """By names, a pattern, or partitions."""
    found = KafkaSource.parse(SERVERS | options, None).arguments()
    chosen = {"topics": (), "pattern": None, "partitions": None} | arguments
    assert {name: found[name] for name in chosen} == chosen


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders", "kafka.group.id": "g"},
        {"subscribePattern": "a.*", **dict.fromkeys(CLIENT, "1500")},
        {"assign": '{"a":[0]}', **SECURE, "kafka.isolation.level": "read_committed"},
        {"subscribe": "a", **OAUTH},
    ],
)
def test_the_reader_takes_every_setting(options: dict[str, str]) -> None:
    """It is made, with each of them, and opens nothing."""
    source = KafkaSource.parse(SERVERS | options, None)
    assert isinstance(source.open_reader(), KafkaRanges)
    assert isinstance(source.for_tasks().open_reader(), KafkaRanges)


def test_times_of_the_client_become_seconds() -> None:
    """Where the reader has seconds."""
    options = {"kafka.request.timeout.ms": "1500", "kafka.metadata.max.age.ms": "9000"}
    found = KafkaSource.parse(TOPIC | options, None).arguments()
    assert (found["read_timeout"], found["metadata_max_age_ms"]) == (1.5, 9000)


def test_the_isolation_level_is_sparks_default() -> None:
    """A query that ports reads what it has read."""
    assert KafkaSource.parse(TOPIC, None).arguments()["isolation_level"] == "read_uncommitted"
    committed = TOPIC | {"kafka.isolation.level": "read_committed"}
    assert KafkaSource.parse(committed, None).arguments()["isolation_level"] == "read_committed"


def test_either_name_of_the_group_counts() -> None:
    """But not two groups."""
    assert KafkaSource.parse(TOPIC, None).group is None
    assert KafkaSource.parse(TOPIC, "etl").group == "etl"
    assert KafkaSource.parse(TOPIC | {"kafka.group.id": "etl"}, "etl").group == "etl"
    with pytest.raises(ConfigurationError, match=r"kafka\.group\.id='a' and group='b'"):
        KafkaSource.parse(TOPIC | {"kafka.group.id": "a"}, "b")


def test_tasks_have_no_group_and_ask_for_no_other_topic() -> None:
    """They read ranges, and nothing else."""
    found = KafkaSource.parse(TOPIC, "etl").for_tasks().arguments()
    assert (found["group"], found["require_topics"]) == (None, False)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers is missing"),
        (SERVERS, "give one of subscribe, subscribePattern, assign; there is none"),
        (TOPIC | {"assign": '{"a":[0]}'}, "give one of"),
        (SERVERS | {"assign": '{"a":{"0":1}}'}, "assign="),
        (SERVERS | {"assign": '{"a":[-1]}'}, "assign="),
        (SERVERS | {"assign": '{"a":[]}'}, "assign="),
        (TOPIC | {"kafka.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        (TOPIC | {"kafka.request.timeout.ms": "soon"}, r"kafka\.request\.timeout\.ms='soon'"),
        (TOPIC | {"kafka.sasl.mechanisms": "s3cret"}, "did you mean kafka.sasl.mechanism?"),
        (TOPIC | {"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        (TOPIC | {"kafka.enable.auto.commit": "true"}, "use group and ackMode"),
        (TOPIC | {"kafka.value.deserializer": "x"}, "cast it"),
        (TOPIC | {"kafka.ssl.protocol": "TLSv1.3"}, "OpenSSL's settings"),
        (TOPIC | {"kafka.ssl.enabled.protocols": "TLSv1.3"}, "OpenSSL's settings"),
        (TOPIC | {"kafka.sasl.kerberos.service.name": "kafka"}, "Kerberos .* PLAIN, SCRAM"),
        (TOPIC | {"kafka.group.instance.id": "one"}, "joins no group"),
        (TOPIC | {"kafka.group.protocol": "consumer"}, "joins no group"),
        (TOPIC | {"kafka.metric.reporters": "x"}, "spark_bridge.watch"),
    ],
)
def test_a_wrong_setting_says_what_to_do(options: dict[str, str], complaint: str) -> None:
    """And never shows the value of one that may be secret."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        KafkaSource.parse(options, None)
    assert "s3cret" not in str(caught.value)


def test_tuning_of_javas_consumer_means_nothing() -> None:
    """A query ports unchanged."""
    options = {"kafka.max.poll.records": "5", "kafka.fetch.max.bytes": "1", "groupidprefix": "x"}
    assert KafkaSource.parse(TOPIC | options, None) == KafkaSource.parse(TOPIC, None)


def test_servers_may_have_a_protocol_before_them() -> None:
    """As Java's client takes them from a broker's own settings."""
    servers = {"kafka.bootstrap.servers": "PLAINTEXT://a:1, SASL_SSL://[::1]:2,c:3"}
    found = KafkaSource.parse(servers | {"subscribe": "t"}, None)
    assert found.servers == "a:1,[::1]:2,c:3"
    assert isinstance(found.open_reader(), KafkaRanges)


def test_tasks_wait_through_an_outage_that_was_allowed() -> None:
    """And never less than without it."""
    tasks = KafkaSource.parse(TOPIC, None).for_tasks(300.0).arguments()
    assert (tasks["connect_timeout"], tasks["read_timeout"]) == (300.0, 300.0)
    slow = KafkaSource.parse(TOPIC | {"kafka.request.timeout.ms": "400000"}, None)
    assert slow.for_tasks(20.0).arguments()["read_timeout"] == 400.0
    assert slow.for_tasks(20.0).arguments()["connect_timeout"] == 20.0


def test_a_source_is_picklable_hashable_and_shows_no_secret() -> None:
    """Traps 14 and 22: it is a key, travels in plans, and may be logged."""
    source = KafkaSource.parse(TOPIC | SECURE, "etl")
    assert pickle.loads(pickle.dumps(source)) == source  # noqa: S301 - our own bytes
    assert hash(source) == hash(KafkaSource.parse(TOPIC | SECURE, "etl"))
    assert source != KafkaSource.parse(TOPIC | SECURE, "other")
    assert "s3cret" not in repr(source)
    assert "s3cret" in source.arguments().values()
