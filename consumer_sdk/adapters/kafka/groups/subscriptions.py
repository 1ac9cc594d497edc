"""The subscription and the assignment of ConsumerProtocol, which members of a classic group exchange as bytes.

The coordinator passes these bytes on, and reads only the topics. Each version appends fields to the one before. So a
reader takes the fields that it knows, whatever the version, and ignores the rest. That is how Java, librdkafka and
aiokafka read each other's.

=======  ====================================================  ============================
version  subscription                                          assignment
=======  ====================================================  ============================
0        topics, user data                                     partitions, user data
1        and owned partitions (KIP-429)                        the same
2        and the generation in which they were given (KIP-792) the same
3        and the rack (KIP-881)                                the same
=======  ====================================================  ============================

The sticky assignors have user data of their own: see `Claims`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.errors import AdapterError

__all__ = [
    "Assignment",
    "Claims",
    "Subscription",
    "UnreadableMemberError",
    "read_assignment",
    "read_claims",
    "read_generation",
    "read_subscription",
    "write_assignment",
    "write_claims",
    "write_generation",
    "write_subscription",
]

NEWEST = 3
NO_GENERATION = -1


class UnreadableMemberError(AdapterError):
    """A member of the group has sent bytes that are not ConsumerProtocol's."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has.

    Attributes:
        user_data: the assignor's own; None for none.
        owned: what the member holds while it joins; empty for an eager one.
        generation: in which it got them; -1 for unknown.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader gives to a member."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """Partitions that a member had, and the generation of that; a sticky assignor leaves them there.

    As bytes they are the user data of Java's ``StickyAssignor`` and of aiokafka's.
    """

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


# -- writing ------------------------------------------------------------------------------------


def write_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """As kafka-clients writes it: topics and partitions are sorted."""
    topics = sorted(subscription.topics)
    parts = [_int16(version), _int32(len(topics)), *map(_text, topics)]
    parts.append(_bytes(subscription.user_data))
    if version >= 1:
        parts.append(_partitions(subscription.owned))
    if version >= 2:  # noqa: PLR2004 - the table above
        parts.append(_int32(subscription.generation))
    if version >= 3:  # noqa: PLR2004
        parts.append(_int16(-1) if subscription.rack is None else _text(subscription.rack))
    return b"".join(parts)


def write_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    """As kafka-clients writes it; partitions are sorted."""
    partitions = _partitions(assignment.partitions)
    return _int16(version) + partitions + _bytes(assignment.user_data)


def write_claims(claims: Claims) -> bytes:
    """User data of ``sticky``."""
    return _partitions(claims.partitions) + _int32(claims.generation)


def write_generation(generation: int) -> bytes:
    """User data of ``cooperative-sticky``: for leaders that do not know version 2 of the subscription."""
    return _int32(generation)


def _int16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _text(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _int32(-1) if data is None else _int32(len(data)) + data


def _partitions(tps: Iterable[TopicPartition]) -> bytes:
    topics = [(topic, list(found)) for topic, found in groupby(sorted(tps), lambda tp: tp.topic)]
    parts = [_int32(len(topics))]
    for topic, found in topics:
        numbers = [tp.partition for tp in found]
        parts += [_text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


# -- reading ------------------------------------------------------------------------------------


def read_subscription(data: bytes, member: str) -> Subscription:
    """What a member wants.

    Args:
        data: any version; fields that are not known yet are left.
        member: whose it is, for the error.

    Raises:
        UnreadableMemberError: this is no subscription.
    """
    reader = _Reader(data, f"the subscription of member {member!r}")
    version = reader.version()
    return Subscription(
        topics=frozenset(reader.text() for _ in range(reader.count(2))),
        user_data=reader.blob(),
        owned=reader.partitions() if version >= 1 else frozenset(),
        generation=reader.int32() if version >= 2 else NO_GENERATION,  # noqa: PLR2004
        rack=reader.text_or_none() if version >= 3 else None,  # noqa: PLR2004
    )


def read_assignment(data: bytes, member: str) -> Assignment:
    """What the leader has given to a member. No bytes are no partitions: the leader named none for it.

    Raises:
        UnreadableMemberError: this is no assignment.
    """
    if not data:
        return Assignment()
    reader = _Reader(data, f"the group leader's assignment for member {member!r}")
    reader.version()
    return Assignment(reader.partitions(), reader.blob())


def read_claims(data: bytes | None) -> Claims:
    """User data of ``sticky``; nothing is claimed where it cannot be read, as in Java.

    Java's first version has no generation.
    """
    if not data:
        return Claims()
    reader = _Reader(data, "user data")
    try:
        partitions = reader.partitions()
        return Claims(partitions, NO_GENERATION if reader.is_at_end() else reader.int32())
    except UnreadableMemberError:
        return Claims()


def read_generation(data: bytes | None) -> int:
    """User data of ``cooperative-sticky``: Java's, or librdkafka's, which is that of ``sticky``; -1 for unknown."""
    if data is not None and len(data) == 4:  # noqa: PLR2004 - an int32
        return int.from_bytes(data, "big", signed=True)
    return read_claims(data).generation


class _Reader:
    """Takes one field after the other.

    Raises:
        UnreadableMemberError: a field is cut off, or cannot be.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise self._broken(f"its version is {version}", self._at - 2)
        return version

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self, least: int) -> int:
        """How many elements follow, of so many bytes each at the least; null counts as none."""
        start, count = self._at, max(self.int32(), 0)
        if count * least > len(self._data) - self._at:
            raise self._broken(f"it should have {count} elements, and is too short", start)
        return count

    def text(self) -> str:
        start = self._at
        text = self.text_or_none()
        if text is None:
            raise self._broken("the name of a topic is missing", start)
        return text

    def text_or_none(self) -> str | None:
        size, start = self.int16(), self._at
        try:
            return None if size == -1 else self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._broken("a text is not UTF-8", start) from error

    def blob(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def partitions(self) -> frozenset[TopicPartition]:
        found = set[TopicPartition]()
        for _ in range(self.count(6)):
            topic = self.text()
            found.update(TopicPartition(topic, self.int32()) for _ in range(self.count(4)))
        return frozenset(found)

    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def _take(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if size < 0 or end > len(self._data):
            raise self._broken(f"{size} bytes should follow, of {len(self._data)} in all", start)
        self._at = end
        return self._data[start:end]

    def _broken(self, what: str, at: int) -> UnreadableMemberError:
        return UnreadableMemberError(
            f"{self._name} cannot be read, at byte {at}: {what}. Has it a client that writes "
            f"something else into the group, or a broken assignor?"
        )
