"""The client's results as the SDK's errors."""

from __future__ import annotations

from typing import Any

import _pulsar

from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)

__all__ = ["BusyError", "SchemaError", "translate", "translate_result"]

Result = _pulsar.Result


class BusyError(TransientAdapterError):
    """Another consumer has the subscription, or has it with another type."""


class SchemaError(AdapterError):
    """The topic's schema is not compatible with the given one."""


TRANSIENT = {
    Result.AlreadyClosed,  # a consumer that was replaced meanwhile
    Result.BrokerMetadataError,
    Result.BrokerPersistenceError,
    Result.ConnectError,
    Result.ConsumerNotFound,
    Result.Interrupted,
    Result.LookupError,
    Result.NotConnected,
    Result.ReadError,
    Result.ServiceUnitNotReady,
    Result.Timeout,
    Result.TooManyLookupRequestException,
}
UNNAMED = "???"
"""What the extension calls results that it does not register: nothing tells that they would last."""
DISCONNECTED = 46
"""One of them, ``ResultDisconnected``: the connection was lost before the broker's answer."""

BUSY = {Result.ConsumerAssignError, Result.ConsumerBusy}
USAGE = {
    Result.InvalidConfiguration: "an option cannot work",
    Result.InvalidTopicName: "give a topic's name, such as 'orders' or "
    "'persistent://public/default/orders'",
    Result.InvalidUrl: "give service_url='pulsar://host:6650' or 'pulsar+ssl://host:6651'",
    Result.TopicNotFound: "there is no such topic: create it, or correct its name",
    Result.SubscriptionNotFound: "there is no such subscription",
    Result.OperationNotSupported: "the broker does not support it",
    Result.NotAllowedError: "the broker does not allow it",
}
DENIED = {
    Result.AuthenticationError,
    Result.AuthorizationError,
    Result.ErrorGettingAuthenticationData,
}


def translate_result(result: Any, doing: str) -> ConsumerSdkError:
    """The error for a result that is not Ok."""
    what = f"{doing}: {_name(result)}"
    if result in BUSY:
        return BusyError(
            f"{what}: another consumer has the subscription, or has it with another type"
        )
    if result in TRANSIENT or result.name == UNNAMED:
        advice = ": check the address, and the options of TLS"
        return TransientAdapterError(what + (advice if result == Result.ConnectError else ""))
    if result == Result.IncompatibleSchema:
        return SchemaError(f"{what}: the topic has another schema")
    if result in USAGE:
        return ConfigurationError(f"{what}: {USAGE[result]}")
    if result in DENIED:
        return AdapterError(f"{what}: check the token or certificate, and the role's permissions")
    return AdapterError(what)


def _name(result: Any) -> str:
    if result.name != UNNAMED:
        return str(result.name)
    is_lost = int(result) == DISCONNECTED
    return "Disconnected" if is_lost else f"result {int(result)} of the client, which has no name"


def translate(error: Any, doing: str) -> ConsumerSdkError:
    """The error for an exception of the client, which has the name of its result."""
    result = getattr(Result, type(error).__name__, Result.UnknownError)
    translated = translate_result(result, doing)
    return type(translated)(f"{translated} ({error})")
