"""The client's errors as the SDK's: of which kind they are, and what they tell."""

from __future__ import annotations

import ssl

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.client.faults import (
    COORDINATOR_MOVED,
    STALE,
    check_code,
    code_name,
    describe,
    name_of,
    names_of,
    translate,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    PositionOutOfRangeError,
    StoreError,
    TransientAdapterError,
    UnreadableRecordError,
)

TP = TopicPartition("t", 1)


@pytest.mark.parametrize(
    "error, kind, said",
    [
        (kafka.AuthenticationFailedError("no"), AdapterError, "check security_protocol"),
        (ssl.SSLError(1, "no"), AdapterError, "check security_protocol"),
        (kafka.TopicAuthorizationFailedError("t"), AdapterError, "(ACLs)"),
        (kafka.OffsetOutOfRangeError("t"), PositionOutOfRangeError, "does not store this position"),
        (kafka.InvalidGroupIdError("g"), ConfigurationError, "another group="),
        (kafka.InvalidSessionTimeoutError("g"), ConfigurationError, "group.min.session.timeout.ms"),
        (kafka.InconsistentGroupProtocolError("g"), ConfigurationError, "no assignment strategy"),
        (kafka.InvalidTopicError("?"), ConfigurationError, "not the name of a topic"),
        (kafka.MessageSizeTooLargeError("t"), AdapterError, "raise max.message.bytes"),
        (kafka.CorruptRecordException("t"), UnreadableRecordError, "repair the log"),
        (kafka.UnsupportedCodecError("zstd"), AdapterError, "pip install 'consumer-sdk[kafka]'"),
        # What is retriable, or is of the connection, may pass; the rest does not.
        (kafka.NotLeaderForPartitionError("t"), TransientAdapterError, ""),
        (kafka.KafkaConnectionError("gone"), TransientAdapterError, ""),
        (kafka.KafkaTimeoutError("late"), TransientAdapterError, ""),
        (kafka.UnknownError("?"), AdapterError, ""),
        (kafka.IllegalStateError("?"), AdapterError, ""),
        (ConnectionResetError("gone"), TransientAdapterError, ""),
        (TimeoutError(), TransientAdapterError, ""),
        (ValueError("?"), AdapterError, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_error_says_what_was_done_what_happened_and_what_to_do(
    error: Exception, kind: type[ConsumerSdkError], said: str
) -> None:
    """Its type says whether a retry can help."""
    found = translate(error, "reading t[1]")
    assert type(found) is kind
    assert found.__cause__ is error
    assert str(found) == f"reading t[1]: {describe(error)}"
    assert said in describe(error)
    assert (";" in describe(error)) == bool(said)


def test_error_of_ours_keeps_its_kind() -> None:
    """Where it was raised comes before its text."""
    error = StoreError("full")
    found = translate(error, "saving")
    assert (type(found), str(found), found.__cause__) == (StoreError, "saving: full", error)


@pytest.mark.parametrize(
    "error, text",
    [
        (TimeoutError(), "TimeoutError"),
        (ValueError("no"), "ValueError: no"),
        (ValueError("ValueError is told"), "ValueError is told"),
    ],
)
def test_error_is_named_once(error: Exception, text: str) -> None:
    """Some texts begin with the name."""
    assert describe(error) == text


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
def test_code_that_asks_for_fresh_metadata_may_pass(code: int) -> None:
    """Also where the client does not say so."""
    for of in (TP, "t[1]"):
        with pytest.raises(kafka.KafkaError, match=r"t\[1\]") as raised:
            check_code(code, of)
        assert raised.value.retriable
        assert isinstance(translate(raised.value, "reading"), TransientAdapterError)


def test_other_codes_are_the_clients_errors() -> None:
    """0 is none; codes of a coordinator that has moved are told apart."""
    check_code(0, TP)
    for code in (4, 10, 29, 57, 73, 76, 79):
        with pytest.raises(kafka.for_code(code), match=r"t\[1\]") as raised:
            check_code(code, TP)
        assert not raised.value.retriable
    assert {14, 15, 16} == COORDINATOR_MOVED
    assert {3, 5, 6, 9, 56, 74, 75, 78} == STALE


def test_names_are_for_messages() -> None:
    """Not hundreds of them."""
    assert (name_of(TP), code_name(3)) == ("t[1]", "UnknownTopicOrPartitionError (3)")
    assert code_name(None) == "the answer leaves it out"
    many = [TopicPartition("t", n) for n in range(9)]
    eight = ", ".join(f"t[{n}]" for n in range(8))
    assert names_of(reversed(many[:8])) == eight
    assert names_of(reversed(many)) == f"{eight} and 1 more"
    assert names_of(many, most=2) == "t[0], t[1] and 7 more"
