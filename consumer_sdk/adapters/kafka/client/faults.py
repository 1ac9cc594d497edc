"""Kafka's errors as the SDK's, translated once, with the cause kept."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

from aiokafka import TopicPartition
from aiokafka import errors as kafka

from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)

__all__ = [
    "COORDINATOR_MOVED",
    "STALE",
    "check_code",
    "code_name",
    "describe",
    "name_of",
    "names_of",
    "translate",
]

Advice = tuple[tuple[type[BaseException], ...], type[ConsumerSdkError], str]

ADVICE: tuple[Advice, ...] = (
    (
        (
            kafka.AuthenticationFailedError,
            kafka.SaslAuthenticationFailed,
            kafka.UnsupportedSaslMechanismError,
            kafka.IllegalSaslStateError,
            ssl.SSLError,
        ),
        AdapterError,
        "check security_protocol, ssl_context and the sasl_… options, and that a token is still valid",
    ),
    (
        (
            kafka.TopicAuthorizationFailedError,
            kafka.GroupAuthorizationFailedError,
            kafka.ClusterAuthorizationFailedError,
        ),
        AdapterError,
        "grant this principal what it needs on the topic and the group (ACLs)",
    ),
    (
        (kafka.OffsetOutOfRangeError,),
        PositionOutOfRangeError,
        "the broker does not store this position (any more, or yet)",
    ),
    (
        (kafka.InvalidGroupIdError,),
        ConfigurationError,
        "the broker does not accept this group id: give another group=",
    ),
    (
        (kafka.InvalidSessionTimeoutError,),
        ConfigurationError,
        "the broker does not accept this session_timeout: keep it within its group.min.session.timeout.ms and group.max.session.timeout.ms",
    ),
    (
        (kafka.InconsistentGroupProtocolError,),
        ConfigurationError,
        "the group's members have no assignment strategy in common: give the partition_assignment_strategy that the others use, or another group=",
    ),
    ((kafka.InvalidTopicError,), ConfigurationError, "this is not the name of a topic"),
    (
        (kafka.MessageSizeTooLargeError,),
        AdapterError,
        "raise max.message.bytes of the topic",
    ),
    (
        (kafka.CorruptRecordException,),
        UnreadableRecordError,
        "the log, or the network, has changed what was stored: read it again, or repair the log",
    ),
    (
        (kafka.UnsupportedCodecError,),
        AdapterError,
        "install the codecs: pip install 'consumer-sdk[kafka]'",
    ),
)
"""The client's errors → the SDK's, and what to do."""


def translate(error: BaseException, where: str) -> ConsumerSdkError:
    """The SDK's error for one of the client's.

    Args:
        where: what was being done, with the topic, group or servers; the message starts with it.
    """
    found = _translate(error, where)
    found.__cause__ = error
    return found


def _translate(error: BaseException, where: str) -> ConsumerSdkError:
    if isinstance(error, ConsumerSdkError):
        return type(error)(f"{where}: {error}")
    text = f"{where}: {describe(error)}"
    if (known := _known(error)) is not None:
        return known[1](text)
    return TransientAdapterError(text) if _is_transient(error) else AdapterError(text)


def describe(error: BaseException) -> str:
    """What has happened, and what to do where that is known."""
    known = _known(error)
    return _text(error) + (f"; {known[2]}" if known else "")


def _known(error: BaseException) -> Advice | None:
    return next((advice for advice in ADVICE if isinstance(error, advice[0])), None)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, kafka.KafkaError):
        return bool(error.retriable) or isinstance(
            error, kafka.KafkaConnectionError | kafka.KafkaTimeoutError
        )
    return isinstance(error, OSError | TimeoutError)


def _text(error: BaseException) -> str:
    text = str(error)
    name = type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}" if text else name


# -- codes --------------------------------------------------------------------------------------

COORDINATOR_MOVED = frozenset({14, 15, 16})
"""It is loading, is not available, or is another."""
STALE = frozenset({3, 5, 6, 9, 56, 74, 75, 78})
"""Codes that ask for fresh metadata: another leader, or none for a moment."""


def check_code(code: int, of: TopicPartition | str) -> None:
    """Raises the client's error for a code; one that may pass is marked as such."""
    name = of if isinstance(of, str) else name_of(of)
    error = kafka.for_code(code)
    if code in STALE and not error.retriable:
        raise kafka.NotLeaderForPartitionError(f"{error.__name__}: {name}")
    if code:
        raise error(name)


def code_name(code: int | None) -> str:
    """For messages: what Kafka calls the code; None: the answer left it out."""
    if code is None:
        return "the answer leaves it out"
    return f"{kafka.for_code(code).__name__} ({code})"


def name_of(tp: TopicPartition) -> str:
    """For messages."""
    return f"{tp.topic}[{tp.partition}]"


def names_of(tps: Iterable[TopicPartition], most: int = 8) -> str:
    """For messages: the partitions, but not hundreds."""
    names = sorted(map(name_of, tps))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
