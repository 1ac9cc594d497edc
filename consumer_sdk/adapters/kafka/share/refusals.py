"""Errors for a share group that refuses a member, with the reason and what to do."""

from __future__ import annotations

from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.groups.refusals import for_good
from consumer_sdk.adapters.kafka.groups.runner import Speech
from consumer_sdk.adapters.kafka.share.structs import from_wire, to_wire
from consumer_sdk.errors import AdapterError, ConfigurationError, ConsumerSdkError

__all__ = ["SPEECH", "unsupported"]

SWITCHED_OFF = (
    "the broker does not offer share groups: they need Kafka 4.1 (renewed locks 4.2), and its feature share.version "
    "switched on (kafka-features.sh upgrade --feature share.version=1); or use group= instead of share_group="
)
ADVICE: dict[int, tuple[type[ConsumerSdkError], str]] = {
    35: (ConfigurationError, SWITCHED_OFF),
    42: (AdapterError, "the broker finds the request invalid"),
    69: (
        ConfigurationError,
        "the group is of another type: give another share_group=, or use group= to join this one",
    ),
    23: (
        ConfigurationError,
        "the group is of another type: give another share_group=, or use group= to join this one",
    ),
    81: (AdapterError, "the group is full: raise the broker's group.share.max.size"),
}
"""Codes → the error, and what to do."""


def refusal(code: int, message: str, where: str) -> ConsumerSdkError:
    """The error for a share group's answer.

    Args:
        message: the broker's own words.
        where: what was asked for; the message starts with it.
    """
    if code not in ADVICE:
        return for_good(translate(kafka.for_code(code)(message), where))
    kind, advice = ADVICE[code]
    said = f"{message.rstrip('.')}; " if message else ""
    return kind(f"{where}: {said}{advice} (error {code})")


def unsupported(error: Exception | None, where: str) -> ConfigurationError:
    """The error for a broker that does not know the requests."""
    said = f"{error}; " if error else ""
    found = ConfigurationError(f"{where}: {said}{SWITCHED_OFF}")
    found.__cause__ = error
    return found


SPEECH = Speech(to_wire, from_wire, refusal, unsupported)
