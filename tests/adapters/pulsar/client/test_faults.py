"""Results of the client as errors."""

from __future__ import annotations

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.faults import (
    BusyError,
    SchemaError,
    translate,
    translate_result,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)

Result = _pulsar.Result


@pytest.mark.parametrize(
    "result, kind, text",
    [
        (Result.ConsumerBusy, BusyError, "with another type"),
        (Result.ConsumerAssignError, BusyError, "with another type"),
        (Result.IncompatibleSchema, SchemaError, "the topic has another schema"),
        (Result.Timeout, TransientAdapterError, "Timeout"),
        (Result.ConnectError, TransientAdapterError, "options of TLS"),
        (Result.ServiceUnitNotReady, TransientAdapterError, "ServiceUnitNotReady"),
        (Result.TopicNotFound, ConfigurationError, "create it, or correct its name"),
        (Result.InvalidTopicName, ConfigurationError, "give a topic's name"),
        (Result.AuthenticationError, AdapterError, "check the token"),
        (Result.AuthorizationError, AdapterError, "permissions"),
        (Result.TopicTerminated, AdapterError, "TopicTerminated"),
    ],
)
def test_result_is_the_error_that_says_what_to_do(
    result: object, kind: type[ConsumerSdkError], text: str
) -> None:
    """Whether to try again is its type."""
    error = translate_result(result, "subscribing to t")
    assert type(error) is kind
    assert str(error).startswith("subscribing to t: ")
    assert text in str(error)


def test_every_result_has_an_error() -> None:
    """Those of clients to come too: unknown ones are not tried again by themselves."""
    for name, result in Result.__members__.items():
        if name != "Ok":
            assert isinstance(translate_result(result, "t"), ConsumerSdkError)


def test_exception_is_the_error_of_its_result() -> None:
    """The client raises one type for each result."""
    assert isinstance(translate(_pulsar.Timeout("x"), "t"), TransientAdapterError)
    assert type(translate(ValueError("x"), "t")) is AdapterError
    assert isinstance(translate(_pulsar.AlreadyClosed("x"), "t"), TransientAdapterError)
    assert str(translate(_pulsar.Timeout("why"), "asking t")) == "asking t: Timeout (why)"


@pytest.mark.parametrize(
    "number, text", [(46, "Disconnected"), (120, "result 120 of the client, which has no name")]
)
def test_result_that_the_client_does_not_name_is_tried_again(number: int, text: str) -> None:
    """Nothing tells that it would last; the extension leaves some of its client's out."""
    unnamed = Result(number)
    assert unnamed.name == "???"
    error = translate_result(unnamed, "asking t")
    assert isinstance(error, TransientAdapterError)
    assert str(error) == f"asking t: {text}"
