"""Options are checked when the adapter is built, with what to do in the message."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.client.options import client_kinds, read_servers
from consumer_sdk.adapters.kafka.consumer.membership import assignors_of
from consumer_sdk.adapters.kafka.groups.foreign_assignor import ForeignAssignor
from consumer_sdk.adapters.kafka.options import OURS
from consumer_sdk.errors import ConfigurationError

GOOD: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "group": "g"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"fetch_max_byte": 1}, "did you mean fetch_max_bytes="),
        ({"zzz": 1}, "unknown option zzz="),
        ({"group_id": "g"}, "use group="),
        ({"session_timeout_ms": 1}, r"use session_timeout= \(seconds\)"),
        ({"value_deserializer": bytes}, "decode in the handler"),
        ({"enable_auto_commit": True}, "what is settled is committed"),
        ({"auto_offset_reset": "latest"}, "start= and out_of_range="),
        ({"group": ""}, "give a name, or None"),
        ({"isolation_level": "serializable"}, "'read_committed' or 'read_uncommitted'"),
        ({"session_timeout": 0}, "session_timeout=0: give seconds"),
        ({"session_timeout": True}, "session_timeout=True: give seconds"),
        ({"heartbeat_interval": 6.0, "session_timeout": 10.0}, "at most half of it"),
        ({"rebalance_timeout": 1.0, "heartbeat_interval": 0.9}, "leaves 0.0 s to drain"),
        ({"rebalance_timeout": 2.0}, r"shorter than two heartbeats and 1 s \(2.33 s\).* give more"),
        ({"rebalance_timeout": 2.9, "protocol": "auto"}, "a shorter heartbeat_interval"),
        ({"request_timeout_ms": 9_000}, "shorter than rebalance_timeout=30.0"),
        ({"connect_timeout": -1}, "connect_timeout=-1: give seconds"),
        ({"bootstrap_servers": ""}, "give 'host:port'"),
        ({"bootstrap_servers": "a:1,b:x"}, "give 'host:port'"),
        ({"bootstrap_servers": []}, "give 'host:port'"),
    ],
)
def test_wrong_option_is_named_with_what_to_do(options: dict[str, Any], message: str) -> None:
    """Nothing waits for the broker to find out."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaAdapter("t", **(GOOD | options))


@pytest.mark.parametrize("topics", [(), ("",)])
def test_adapter_needs_topics(topics: tuple[str, ...]) -> None:
    """There is nothing to read without one."""
    with pytest.raises(ConfigurationError, match="topic"):
        KafkaAdapter(*topics, **GOOD)


@pytest.mark.parametrize(
    "topics, options, message",
    [
        (("t",), {"pattern": "t.*"}, "beside the topics t: give either"),
        ((), {"pattern": "("}, "is no regular expression: .* whole name"),
        ((), {"pattern": " "}, "is empty: '.*' matches all"),
        ((), {"pattern": 7}, "pattern=7: give a text"),
        (("t",), {"protocol": "cooperative"}, "'classic', 'consumer' or 'auto'"),
        (("t",), {"protocol": "consumer", "group": None}, "give group= too"),
        (("t",), {"protocol": "auto", "group": None}, "give group= too"),
        (
            ("t",),
            {"protocol": "consumer", "session_timeout": 6.0},
            "broker decides that .*consumer.session.timeout.ms",
        ),
        (
            ("t",),
            {"protocol": "consumer", "heartbeat_interval": 1.0},
            "broker decides that .*consumer.heartbeat.interval.ms",
        ),
        (
            ("t",),
            {"protocol": "consumer", "partition_assignment_strategy": ("range",)},
            "broker decides that .*group.consumer.assignors",
        ),
    ],
)
def test_topics_pattern_and_protocol_have_to_go_together(
    topics: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    """What one of them makes meaningless is not taken in silence."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaAdapter(*topics, **(GOOD | options))


def test_every_option_that_is_ours_is_one_of_the_clients() -> None:
    """The list of options to refuse does not go stale."""
    assert OURS.keys() <= client_kinds(AIOKafkaConsumer.__init__).keys()


@pytest.mark.parametrize(
    "given, servers",
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2", ["a:1", "b:2"]),
        (["a:1", "b"], ["a:1", "b"]),
        ("[::1]:9", ["[::1]:9"]),
    ],
)
def test_servers_can_be_given_as_text_or_in_a_sequence(given: Any, servers: list[str]) -> None:
    """As Kafka's own configuration has them."""
    assert read_servers(given) == servers


def test_drain_budget_is_what_the_rebalance_leaves() -> None:
    """The group waits for the rebalance timeout; hearing of it costs up to one heartbeat."""
    adapter = KafkaAdapter("t", rebalance_timeout=30.0, heartbeat_interval=3.0, **GOOD)
    assert adapter._options.revoke_budget == 26.0


@pytest.mark.parametrize(
    "options",
    [
        {"rebalance_timeout": 3.0},
        {"rebalance_timeout": 1.3, "heartbeat_interval": 0.1},
        {"rebalance_timeout": 1.0, "protocol": "consumer"},  # it begins when the member hears of it
    ],
)
def test_rebalance_may_be_as_short_as_a_lost_heartbeat_allows(options: dict[str, Any]) -> None:
    """Two heartbeats and a second; in the consumer protocol what a drain needs."""
    assert KafkaAdapter("t", **(GOOD | options))._options.revoke_budget > 0.5


def test_join_may_take_as_long_as_the_rebalance() -> None:
    """The client would give up its join while the group still waits for another member."""
    adapter = KafkaAdapter("t", rebalance_timeout=300.0, **GOOD)
    assert adapter._options.for_cluster()["request_timeout_ms"] == 310_000


@pytest.mark.parametrize("option", ["max_poll_interval_ms", "enable_auto_commit", "group_id"])
def test_membership_and_commits_are_no_clients(option: str) -> None:
    """T16: they depend on heartbeats and on what is settled, not on how often somebody asks for more."""
    given: dict[str, Any] = {option: 1}
    with pytest.raises(ConfigurationError, match=f"{option}= is not for you to set here"):
        KafkaAdapter("t", **given, **GOOD)


def test_strategy_may_be_named_as_for_javas_consumers() -> None:
    """Those of aiokafka's classes may be given too."""
    url = "kafka://a:1/t?group=g&partition_assignment_strategy=cooperative-sticky,range"
    names = KafkaAdapter.from_url(url)._options.client_options["partition_assignment_strategy"]
    assert [each.name for each in assignors_of(names)] == ["cooperative-sticky", "range"]
    given = assignors_of((RoundRobinPartitionAssignor,))
    assert [(type(each), each.name) for each in given] == [(ForeignAssignor, "roundrobin")]
    assert [each.name for each in assignors_of(None)] == ["roundrobin"]


class OfInstances(AbstractPartitionAssignor):  # type: ignore[misc]  # the client has no types
    """Its method is that of an instance, and nobody makes one."""

    name = "mine"
    metadata = on_assignment = classmethod(lambda _cls, _told: None)

    def assign(self, cluster: object, members: object) -> None:
        """Shares nothing out."""


class Cooperative(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """It would give away what its members still hold."""

    name = "cooperative-sticky"


@pytest.mark.parametrize(
    "strategy, fault",
    [
        ("range", "'range'"),
        ((), ""),
        ((int,), "class int has no text as its name"),
        ((7,), "7 is neither a name nor a class"),
        ((None,), "None is neither"),
        (("sticks",), "'sticks' is no assignor"),
        (("range", ""), "'' is no assignor"),
        (("range", "sticky", "range"), "'range' is there twice"),
        (("roundrobin", RoundRobinPartitionAssignor), "'roundrobin' is there twice"),
        ((AbstractPartitionAssignor,), "AbstractPartitionAssignor has no text as its name"),
        ((OfInstances,), r"OfInstances.assign is not .* 2 arguments: make it a classmethod"),
        ((Cooperative,), "Cooperative is eager, and has the name of a cooperative one"),
        ((RoundRobinPartitionAssignor, "x", "range"), "'x' is no assignor"),
    ],
)
def test_strategy_that_cannot_share_out_is_refused_with_what_may_be_given(
    strategy: Any, fault: str
) -> None:
    """It would fail at the first rebalance, or not be asked at all."""
    may_be_given = (
        "give a sequence of range, roundrobin, sticky, cooperative-sticky, or of aiokafka"
    )
    with pytest.raises(ConfigurationError, match=f"{fault}.*{may_be_given}"):
        KafkaAdapter("t", partition_assignment_strategy=strategy, **GOOD)


@pytest.mark.parametrize(
    "strategy",
    [
        ["cooperative-sticky", RoundRobinPartitionAssignor],
        (StickyPartitionAssignor, RangePartitionAssignor, "roundrobin"),
    ],
)
def test_names_and_classes_of_aiokafka_may_be_mixed(strategy: Any) -> None:
    """As in a group that moves from one to the other."""
    adapter = KafkaAdapter("t", partition_assignment_strategy=strategy, **GOOD)
    given = adapter._options.client_options["partition_assignment_strategy"]
    assert len(assignors_of(given)) == len(strategy)


def test_tls_without_a_context_takes_the_systems_certificates() -> None:
    """The client would refuse to start."""
    adapter = KafkaAdapter("t", security_protocol="SSL", **GOOD)
    assert adapter._options.for_cluster()["ssl_context"] is not None


def test_dead_letters_get_the_connection_options_and_no_other() -> None:
    """What reaches the servers for reading reaches them for writing."""
    adapter = KafkaAdapter(
        "t",
        security_protocol="SASL_PLAINTEXT",
        sasl_plain_username="u",
        sasl_plain_password="p",  # noqa: S106 - of nobody
        fetch_max_bytes=5,
        **GOOD,
    )
    found = adapter._options.for_connection()
    assert found["sasl_plain_username"] == "u"
    assert "fetch_max_bytes" not in found
