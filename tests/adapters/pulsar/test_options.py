"""Options of Pulsar adapters: what cannot work is an error when they are built."""

from __future__ import annotations

import threading
from typing import Any

import pulsar
import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.dead_letters import PulsarDeadLetters
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Kind


def adapter_of(*topics: str, **options: Any) -> PulsarAdapter:
    """An adapter that is never opened."""
    given = {"service_url": "pulsar://h:6650", "subscription": "billing"} | options
    return PulsarAdapter(*topics, **given)


POLICY = pulsar.ConsumerKeySharedPolicy()
READER = pulsar.CryptoKeyReader("public.pem", "private.pem")


@pytest.mark.parametrize(
    "topics, options, message",
    [
        ([], {}, "give topics, or pattern="),
        (["t"], {"pattern": "t.*", "admin_url": "http://h:1"}, "give topics, or pattern="),
        ([""], {}, "name of a topic"),
        ([" t"], {}, "name of a topic"),
        ([], {"pattern": "t.*"}, "needs admin_url="),
        ([], {"pattern": "(", "admin_url": "http://h:1"}, "pattern='\\('"),
        (["t"], {"subscription": " "}, "subscription=' ': give a name"),
        (["t"], {"type": "Shared"}, "'exclusive', 'failover', 'shared' or 'key_shared'"),
        (["t"], {"initial_position": "first"}, "give 'earliest' or 'latest'"),
        (["t"], {"receiver_queue": 0}, "receiver_queue=0"),
        (["t"], {"receiver_queue": "9"}, "whole number"),
        (["t"], {"buffer_bytes": 0}, "buffer_bytes=0"),
        (["t"], {"memory_limit": 0}, "memory_limit=0"),
        (["t"], {"max_message_size": 0}, "max_message_size=0"),
        (["t"], {"memory_limit": 15_728_639}, "need 15728640 bytes"),
        (["t"], {"busy_timeout": 0}, "busy_timeout=0"),
        (["t"], {"busy_timeout": "soon"}, "give seconds"),
        (["t"], {"discovery_interval": float("inf")}, "discovery_interval=inf"),
        (["t"], {"persist_time": 0}, "persist_time=0: give seconds"),
        (["t"], {"cumulative_acks": True, "type": "shared"}, "individual acks only"),
        (["t"], {"admin_url": "h:8080"}, "give http://host:port"),
        (["t"], {"retry_topic": True}, "shared and key_shared"),
        (["t"], {"retry_topic": True, "type": "failover"}, "shared and key_shared"),
        (["t"], {"retry_topic": True, "type": "shared", "retry_limit": 0}, "retry_limit=0"),
        (["t"], {"encryption_keys": ["k"]}, "needs crypto_key_reader="),
        (["non-persistent://public/default/t"], {}, "give a persistent topic"),
        (
            [],
            {"pattern": "non-persistent://public/default/t.*", "admin_url": "http://h"},
            "give a persistent topic",
        ),
        (["t"], {"crypto_key_reader": "public.pem"}, "give a pulsar.CryptoKeyReader"),
        (
            ["t"],
            {"retry_topic": True, "type": "shared", "crypto_key_reader": READER},
            "give encryption_keys=",
        ),
        (["t"], {"crypto_failure_action": "skip"}, "give 'fail', 'discard' or 'consume'"),
        (
            ["t"],
            {"retry_topic": True, "type": "shared", "crypto_failure_action": "consume"},
            "nobody could decrypt the copies",
        ),
        (["t"], {"max_pending_chunked_message": 0}, "max_pending_chunked_message=0"),
        (["t"], {"is_read_compacted": True, "type": "shared"}, "exclusive and failover"),
        (["t"], {"key_shared_policy": POLICY, "type": "shared"}, "needs type='key_shared'"),
        (["t"], {"key_shared_policy": "sticky"}, "give a pulsar.ConsumerKeySharedPolicy"),
        (["t"], {"properties": {"team": 1}}, "give names with texts"),
        (["t"], {"tokn": "x"}, "did you mean token="),
        (["t"], {"service_url": "h:6650"}, "pulsar://host:port"),
    ],
)
def test_option_that_cannot_work_is_an_error(
    topics: list[str], options: dict[str, Any], message: str
) -> None:
    """It says what to write instead."""
    with pytest.raises(ConfigurationError, match=message):
        adapter_of(*topics, **options)


@pytest.mark.parametrize(
    "kind, is_queue", [("exclusive", False), ("failover", False), ("shared", True)]
)
def test_type_says_what_the_runtime_may_promise(kind: str, *, is_queue: bool) -> None:
    """Data, which the runtime draws its conclusions from; a queue's unacked ones stay below the broker's limit."""
    capabilities = adapter_of("t", type=kind, receiver_queue=500).capabilities
    assert (capabilities.kind is Kind.QUEUE) == is_queue
    assert capabilities.keeps_key_order != is_queue
    assert capabilities.max_unacked == (45_500 if is_queue else None)
    assert not capabilities.tells_new


async def test_start_of_a_log_whose_subscription_may_be_there_needs_the_admin_url() -> None:
    """The client does not tell whether the subscription is new."""
    with pytest.raises(ConfigurationError, match="admin_url"):
        async with Consumer(adapter_of("t"), start="latest"):
            pass


@pytest.mark.parametrize(
    "options, has_some",
    [
        ({}, True),
        ({"crypto_key_reader": READER}, False),
        ({"crypto_key_reader": READER, "encryption_keys": ["k"]}, True),
    ],
)
def test_dead_letters_of_encrypted_messages_are_encrypted_or_none(
    options: dict[str, Any], *, has_some: bool
) -> None:
    """Nothing that was encrypted is written in plain text because nobody thought of it."""
    letters = adapter_of("t", **options | {"token": "secret"}).dead_letters()
    assert isinstance(letters, PulsarDeadLetters) == has_some
    assert "secret" not in repr(letters)


def test_dead_letters_ask_the_same_function_for_tokens() -> None:
    """Whatever it is a method of, which may hold a lock, is not copied."""

    class Tokens:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def fresh(self) -> str:
            return "t"

    assert adapter_of("t", token=Tokens().fresh).dead_letters() is not None


def test_native_options_are_those_that_were_given() -> None:
    """What the client is told, read back from it."""
    adapter = adapter_of("t", type="key_shared", receiver_queue=7, consumer_name="me")
    made = adapter._options.for_consumer(is_discovered=False)
    assert made.receiver_queue_size() == 7
    assert made.consumer_type().name == "KeyShared"
    assert made.consumer_name() == "me"
    assert made.batch_index_ack_enabled()


@pytest.mark.parametrize(
    "initial, is_discovered, expected",
    [("earliest", False, "Earliest"), ("latest", False, "Latest"), ("latest", True, "Earliest")],
)
def test_subscription_of_a_topic_found_later_begins_at_its_first_record(
    initial: str, *, is_discovered: bool, expected: str
) -> None:
    """Pulsar's own patterns lose what was written before the discovery."""
    made = adapter_of("t", initial_position=initial)._options.for_consumer(
        is_discovered=is_discovered
    )
    assert made.subscription_initial_position().name == expected
