"""Options are checked when the reader is built; it travels until it is opened."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.adapters.kafka.ranges import options as module
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition

SERVERS = "127.0.0.1:1"


@pytest.mark.parametrize(
    "topics,options,message",
    [
        ((), {}, "one choice of topics"),
        ("a", {"pattern": "b"}, "one choice of topics"),
        ([""], {}, "name of a topic"),
        ((), {"pattern": "("}, "no regular expression"),
        ((), {"partitions": ["a"]}, "partitions=.*: give"),
        ((), {"partitions": {"a": []}}, "give numbers"),
        ((), {"partitions": {"a": [-1]}}, "give numbers"),
        ((), {"partitions": {"a": [0], "b": [0, True]}}, "partitions of 'b': .*give numbers"),
        ((), {"partitions": {"a": ["0"]}}, "give numbers"),
        ((), {"partitions": {"": [0]}}, "name of a topic"),
        ("a", {"partitions": {"a": [0]}}, "one choice of topics"),
        ((), {"pattern": "a", "partitions": {"a": [0]}}, "one choice of topics"),
        ("a", {"group": " "}, "give a name"),
        ("a", {"isolation_level": "dirty"}, "read_committed"),
        ("a", {"read_timeout": 0}, "seconds, above 0"),
        ("a", {"connect_timeout": True}, "seconds, above 0"),
        ("a", {"bootstrap_servers": "host:port"}, "host:port"),
        ("a", {"request_timeout_ms": 1}, "use read_timeout="),
        ("a", {"grupp": "g"}, "did you mean group="),
        ("a", {"fetch_max_bytes": 1}, "unknown option"),
    ],
)
def test_option_that_cannot_work_is_refused(
    topics: Any, options: dict[str, Any], message: str
) -> None:
    """The error says what to give."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaRanges(topics, **({"bootstrap_servers": SERVERS} | options))


def test_reader_is_pickled_before_it_is_opened() -> None:
    """Spark trap 17: it holds no client, no loop and no connection."""
    reader = KafkaRanges("a", bootstrap_servers=SERVERS, group="g", security_protocol="SSL")
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own bytes
    assert again.group == "g"
    assert again._options == reader._options
    assert again.broker_calls == 0


def test_secrets_are_in_no_repr() -> None:
    """Spark trap 22: options end up in plans and logs."""
    options: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }
    reader = KafkaRanges("a", bootstrap_servers=SERVERS, **options)
    assert "secret" not in repr(reader) + repr(reader._options)


@pytest.mark.parametrize(
    "choice, chosen",
    [
        ({"topics": ["a", "b"]}, {"a/0", "a/1"}),
        ({"partitions": {"a": [1]}}, {"a/1"}),
        ({"pattern": "a"}, {"a/0", "a/1"}),
        ({"pattern": "a", "whole_names": False}, {"a/0", "a/1", "ab/0"}),
    ],
)
def test_what_is_no_longer_chosen_can_be_told_from_what_is_gone(
    choice: dict[str, Any], chosen: set[str]
) -> None:
    """By the options alone: a query that leaves a topic out has lost nothing."""
    reader = KafkaRanges(bootstrap_servers=SERVERS, **choice)
    partitions = [Partition("a", "0"), Partition("a", "1"), Partition("ab", "0")]
    assert {str(each) for each in partitions if reader.is_chosen(each)} == chosen


def test_choice_names_its_topics() -> None:
    """A pattern names none."""
    choices: list[dict[str, Any]] = [
        {"topics": ["b", "a"]},
        {"partitions": {"a": [0], "c": [2]}},
        {"pattern": "a"},
    ]
    made = [KafkaRanges(bootstrap_servers=SERVERS, **choice)._options for choice in choices]
    assert [options.names for options in made] == [["b", "a"], ["a", "c"], []]


@pytest.mark.parametrize("seconds, milliseconds", [(3.0, 1500), (0.001, 1)])
def test_connection_that_hangs_is_given_up_in_half_the_time(
    seconds: float, milliseconds: int
) -> None:
    """The other half is for another try."""
    reader = KafkaRanges(
        "a", bootstrap_servers=SERVERS, read_timeout=seconds, isolation_level="read_committed"
    )
    found = reader._options.for_client()
    assert found["request_timeout_ms"] == milliseconds
    assert found["bootstrap_servers"] == [SERVERS]
    assert reader._options.level == 1


@pytest.mark.parametrize("rack, knows", [("r", True), ("", False), ("r", False)])
def test_rack_that_no_request_could_say_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    rack: str,
    knows: bool,  # noqa: FBT001 - a parameter
) -> None:
    """An older client would read from leaders, and nobody would know."""
    monkeypatch.setattr(module, "KNOWS_RACKS", knows)
    if rack and not knows:
        with pytest.raises(ConfigurationError, match=r"client_rack='r'.* install 0\.14"):
            KafkaRanges("a", bootstrap_servers=SERVERS, client_rack=rack)
    else:
        reader = KafkaRanges("a", bootstrap_servers=SERVERS, client_rack=rack)
        assert reader._options.client_rack == rack


def test_options_that_only_an_adapter_has_are_known() -> None:
    """Whoever moves from one to the other is told which do not apply."""
    KafkaRanges("a", bootstrap_servers=SERVERS, retry_backoff_ms=5)
    assert {"rebalance_timeout", "session_timeout_ms", "fetch_max_bytes"} <= module.CONSUMERS_OWN
    assert not {"client_id", "read_timeout", "group", "retry_backoff_ms"} & module.CONSUMERS_OWN
