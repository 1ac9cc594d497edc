"""Errors for a group that refuses a member, with the reason and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.options import ASSIGNORS
from consumer_sdk.adapters.kafka.groups.choosing import ClassicMembers
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)

__all__ = ["for_good", "refusal", "unlike", "unsupported"]

OTHER_TYPE = (
    "the group is of another type: give another group=, or the protocol= that its members use "
    "(share groups have none here)"
)
SWITCHED_OFF = (
    "the broker does not offer groups of the consumer protocol: use protocol='classic' or 'auto', or "
    "allow it there (Kafka 4.0, its feature group.version, group.coordinator.rebalance.protocols)"
)

ADVICE: dict[int, tuple[type[ConsumerSdkError], str]] = {
    23: (ConfigurationError, OTHER_TYPE),
    35: (ConfigurationError, SWITCHED_OFF),
    42: (AdapterError, "the broker finds the request invalid"),
    69: (ConfigurationError, OTHER_TYPE),
    81: (
        AdapterError,
        "the group is full: raise the broker's group.max.size, or group.consumer.max.size",
    ),
    82: (AdapterError, "this member was replaced, and takes no part in the group any more"),
    111: (
        AdapterError,
        "another member has this group_instance_id: give each member its own, or end the other one",
    ),
    112: (ConfigurationError, "the broker does not know the assignor (group.consumer.assignors)"),
    128: (
        ConfigurationError,
        (
            "the broker evaluates patterns as RE2, which has no look-around and no references back: "
            "write another pattern, or use protocol='classic'"
        ),
    ),
}
"""Codes that the client has no error for, or another advice → the error, and what to do."""

INCONSISTENT = 23
"""In the classic protocol: no assignor in common."""

CONSUMERS = "consumer"


def refusal(code: int, message: str, where: str, *, is_classic: bool) -> ConsumerSdkError:
    """The error for a group's answer.

    Args:
        message: the broker's own words.
        where: what was asked for; the message starts with it.
        is_classic: the member speaks the classic protocol, in which some codes mean something else.
    """
    if code not in ADVICE or (is_classic and code == INCONSISTENT):
        return for_good(translate(kafka.for_code(code)(message), where))
    kind, advice = ADVICE[code]
    said = f"{message}; " if message else ""
    return kind(f"{where}: {said}{advice} (error {code})")


def unlike(offered: Sequence[str], where: str, members: ClassicMembers | None) -> ConsumerSdkError:
    """The error for a classic group whose members have no assignor in common with this one.

    Args:
        offered: this one's assignors.
        members: as the coordinator describes them; None where it does not.
    """
    said = f"this member offers the assignors {', '.join(map(repr, offered))}"
    is_known = members is not None and members.assignor not in ("", *offered)
    if members is None or (members.kind == CONSUMERS and not is_known):
        return refusal(INCONSISTENT, said, where, is_classic=True)
    if members.kind != CONSUMERS:
        advice = f"the group is of another type, {members.kind!r}: give another group="
    else:
        advice = _of_assignor(members)
    return ConfigurationError(f"{where}: {said}; {advice} (error {INCONSISTENT})")


def _of_assignor(members: ClassicMembers) -> str:
    name = members.assignor
    said = f"the group's members ({members.size}) share partitions out by {name!r}: give"
    if name in ASSIGNORS:
        return f"{said} partition_assignment_strategy=[{name!r}], or another group="
    return f"{said} an assignor class of that name in partition_assignment_strategy=, or another group="


def for_good(error: ConsumerSdkError) -> ConsumerSdkError:
    """Makes an error final that passes elsewhere: the membership has ended with it, so another fetch would wait in vain."""
    if not isinstance(error, TransientAdapterError):
        return error
    found = AdapterError(f"{error}; the group refuses the member: start the consumer again")
    found.__cause__ = error.__cause__
    return found


def unsupported(error: Exception, where: str) -> ConfigurationError:
    """The error for a broker that does not know the request."""
    found = ConfigurationError(f"{where}: {error}; {SWITCHED_OFF}")
    found.__cause__ = error
    return found
