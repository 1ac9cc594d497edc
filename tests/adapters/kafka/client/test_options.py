"""What aiokafka's clients may be given, and what is said of the rest."""

from __future__ import annotations

import inspect
import math
import ssl
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from consumer_sdk.adapters.kafka.client import options as module
from consumer_sdk.adapters.kafka.client.options import (
    check_client_options,
    client_kinds,
    connection_options,
    read_servers,
    read_topics,
)
from consumer_sdk.errors import ConfigurationError

PLAIN: dict[str, Any] = {"sasl_plain_username": "u", "sasl_plain_password": "p"}


class Token(AbstractTokenProvider):  # type: ignore[misc]  # the client has no types
    """Has one."""

    async def token(self) -> str:
        return "t"


def check(client: Any = AIOKafkaConsumer.__init__, **options: Any) -> None:
    """As an adapter checks what it was given beside its own options."""
    check_client_options(options, client, {})


def refused(said: str, client: Any = AIOKafkaConsumer.__init__, **options: Any) -> None:
    """It is an error that says this."""
    with pytest.raises(ConfigurationError, match=said):
        check(client, **options)


@pytest.mark.parametrize("name", ["sasl_plain_username", "sasl_plain_password"])
def test_text_of_a_login_is_not_empty(name: str) -> None:
    """A variable of the environment may not be set; the password is not shown."""
    for wrong in ("", 7):
        refused(f"{name}=.*is not empty", security_protocol="SASL_SSL", **PLAIN | {name: wrong})
    check(security_protocol="SASL_SSL", **PLAIN)
    refused("group_instance_id=''.*is not empty", group_instance_id="")
    check(group_instance_id=None)


def test_milliseconds_are_0_or_more() -> None:
    """Of each option whose name says so."""
    for right in (0, 1, 500):
        check(fetch_max_wait_ms=right, client_id="a text")
    for wrong in (-1, math.inf, "5", None):
        refused("fetch_max_wait_ms=.*milliseconds, 0 or more", fetch_max_wait_ms=wrong)


def test_acks_are_those_by_which_a_producer_knows_what_was_written() -> None:
    """Also as texts of a URL."""
    producer = AIOKafkaProducer.__init__
    for right in ("all", -1, 1):
        check(producer, acks=right)
    for wrong in (0, 2, "one", None):
        refused("acks=.*nobody would know", producer, acks=wrong)
    read = client_kinds(producer)["acks"].read
    assert read is not None
    assert [read(text) for text in ("all", "-1", "1")] == ["all", -1, 1]
    assert "acks" not in client_kinds(AIOKafkaConsumer.__init__)


@pytest.mark.parametrize("wrong", ["range", (), [], {"range": 1}, {"range"}])
def test_strategy_is_a_sequence_that_is_not_empty(wrong: Any) -> None:
    """A member that shares out by nothing cannot join."""
    refused("partition_assignment_strategy=.*a sequence of", partition_assignment_strategy=wrong)
    read = client_kinds(AIOKafkaConsumer.__init__)["partition_assignment_strategy"].read
    assert read is not None
    assert read("range,sticky") == ("range", "sticky")


class Nameless(RangePartitionAssignor):  # type: ignore[misc]
    """Has an empty name."""

    name = ""


class Unfinished(AbstractPartitionAssignor):  # type: ignore[misc]
    """Cannot share out."""

    name = "unfinished"


class Attribute(RangePartitionAssignor):  # type: ignore[misc]
    """Has something else in the place of a method."""

    name = "attribute"
    assign = 7


class Short(RangePartitionAssignor):  # type: ignore[misc]
    """Takes too little."""

    name = "short"

    @classmethod
    def assign(cls, cluster: Any) -> Any:
        """Of two arguments."""


@pytest.mark.parametrize(
    "assignor, said",
    [
        (Nameless, "Nameless has no text as its name"),
        (Unfinished, "Unfinished.assign is not to be called on the class, with 2 arguments"),
        (Attribute, "Attribute.assign is not to be called on the class"),
        (Short, "Short.assign is not to be called on the class"),
        (7, "7 is neither a name nor a class"),
    ],
)
def test_class_that_cannot_share_out_is_named(assignor: Any, said: str) -> None:
    """When the consumer is configured, not in a rebalance."""
    refused(said, partition_assignment_strategy=[assignor])
    check(partition_assignment_strategy=[RangePartitionAssignor, "sticky"])


def test_method_of_which_nobody_sees_what_it_takes_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be written in C."""

    def unknown(_method: Any) -> Any:
        raise ValueError("no signature found")

    monkeypatch.setattr(inspect, "signature", unknown)
    check_strategy = module._check_strategy
    check_strategy([Short])


@pytest.mark.parametrize(
    "options, said",
    [
        (PLAIN, r"sasl_plain_password= has no effect with security_protocol='PLAINTEXT'"),
        (PLAIN | {"security_protocol": "SSL"}, "has no effect with security_protocol='SSL'"),
        ({"ssl_context": True}, "what ssl.create_default_context"),
        ({"security_protocol": "SASL_SSL"}, "'PLAIN' needs sasl_plain_username=…: give it too"),
        (
            {"security_protocol": "SASL_SSL", "sasl_plain_username": "u"},
            "'PLAIN' needs sasl_plain_password=…",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_plain_username": "u",
                "sasl_plain_password": None,
            },
            "'PLAIN' needs sasl_plain_password=…",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", **PLAIN},
            "'OAUTHBEARER' needs sasl_oauth_token_provider=…",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"},
            "'SCRAM-SHA-512' needs sasl_plain_username=…",
        ),
    ],
)
def test_security_that_does_not_fit_together_is_refused(options: dict[str, Any], said: str) -> None:
    """An option without an effect was meant to have one; one that is None was not given."""
    refused(said, **options)


def test_security_that_fits_together_is_taken() -> None:
    """With TLS or without, by a password or a token."""
    tls = ssl.create_default_context()
    for protocol in ("SSL", "SASL_SSL"):
        check(security_protocol=protocol, ssl_context=tls, **PLAIN if "SASL" in protocol else {})
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        login = PLAIN if "SASL" in protocol else {}
        refused("ssl_context= has no effect", security_protocol=protocol, ssl_context=tls, **login)
    refused("ssl_context= has no effect", ssl_context=tls)
    token = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Token()}
    check(security_protocol="SASL_SSL", **token)
    check(sasl_plain_username=None, ssl_context=None)


@pytest.mark.parametrize("is_there", [True, False])
def test_kerberos_needs_a_package(monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    """The client imports it with the first connection; it needs no password."""
    monkeypatch.setattr(module, "find_spec", lambda name: name if is_there else None)
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
    if is_there:
        check(**options)
    else:
        refused("pip install gssapi", **options)


@pytest.mark.parametrize(
    "given, url, port",
    [
        (7, False, False),
        ([7], False, False),
        ({"a:1": 1}, False, False),
        ("", False, False),
        ("a:x", False, False),
        ("a:99999", False, True),
        ("kafka://a:1", True, True),
        ("a/b:1", False, True),
        ("u@a:1", False, True),
        ("a;b:1", False, True),
        ("a?b:1", False, True),
        (["a:1", "b:0"], False, True),
    ],
)
def test_servers_that_are_none_are_refused_with_what_is_wrong(
    given: Any, *, url: bool, port: bool
) -> None:
    """A URL is none, and a port has its range."""
    with pytest.raises(ConfigurationError, match=r"servers=.*give 'host:port'") as found:
        read_servers(given)
    assert (", not a URL" in str(found.value)) == url
    assert ("a port of 1 to 65535" in str(found.value)) == port


def test_servers_may_be_any_collection_of_texts() -> None:
    """Blanks beside them do not count."""
    for given in (["a:1"], ("a:1",), {"a:1"}, frozenset({"a:1"}), " a:1 "):
        assert read_servers(given) == ["a:1"]  # type: ignore[arg-type]  # sets have an order of their own


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "t" * 250, "é", 7, None])
def test_name_that_no_topic_has_is_refused(topic: Any) -> None:
    """With what a name has."""
    with pytest.raises(ConfigurationError, match=r"topic .*give"):
        read_topics((topic,))
    assert read_topics((["a.b", "t" * 249],)) == ("a.b", "t" * 249)


def test_system_certificates_are_for_tls_without_a_context() -> None:
    """Nothing else is added, and what was given is not changed."""
    own = ssl.create_default_context()
    for protocol in ("SSL", "SASL_SSL"):
        given = {"security_protocol": protocol}
        assert isinstance(connection_options(given)["ssl_context"], ssl.SSLContext)
        assert "ssl_context" not in given
        assert connection_options(given | {"ssl_context": own})["ssl_context"] is own
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        assert connection_options({"security_protocol": protocol}).get("ssl_context") is None
    assert connection_options({}) == {}
