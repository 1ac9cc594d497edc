"""The fetch request and its response on the wire, in versions 4, 11, 12 and 13.

A response is megabytes of record batches in an envelope of a few bytes for each partition. aiokafka's schemas build a
tuple for each partition, field by field, in the task that reads the connection. Here the connection hands over the
bytes as they are, and `FetchAnswer.read` walks the envelope once, and checks every length.

Version 4 is Kafka 0.11's. 11 has sessions (KIP-227), leaders' epochs (KIP-320) and racks (KIP-392). 12 tells
the epoch of the last record that was fetched, so that the broker itself finds a truncated log. 13 names topics by id,
so a recreated topic is another topic.
"""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar, NamedTuple

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.types import Schema

from consumer_sdk.adapters.kafka.fetch.session import Ask, SessionRequest

__all__ = [
    "AnswerFormatError",
    "FetchAnswer",
    "FetchLimits",
    "FetchRequest",
    "Fetched",
    "PartitionAnswer",
]

FETCH = 1
"""The key of a fetch."""
CONSUMER = -1
"""What a consumer says where a broker would say its id."""
NO_OFFSET = -1
MORE, LAST_SHIFT = 0x80, 28
"""Of a number in groups of seven bits: another one follows; where the last one lies."""
SESSIONS, EPOCHS, TAGS, IDS = 11, 11, 12, 13
"""The first of the versions here that has each."""


class AnswerFormatError(ValueError):
    """The bytes are not an answer to a fetch; nothing of them is used."""


# -- requests ---------------------------------------------------------------------------------


class FetchLimits(NamedTuple):
    """What a request says besides the partitions.

    Attributes:
        max_wait: milliseconds that the broker may wait for `min_bytes`.
        max_bytes: of all record batches; the first batch comes in any case.
        isolation: 1 to read only what is committed.
        rack: the reader's; empty for none.
    """

    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation: int
    rack: str = ""


class FetchAnswer:
    """An answer, not read yet.

    Args:
        data: the frame as it came.
        at: where the answer begins, behind its head.
    """

    API_KEY = FETCH
    __slots__ = ("_at", "_data", "_version")

    def __init__(self, version: int, data: bytes, at: int) -> None:
        self._version = version
        self._data = data
        self._at = at

    def __repr__(self) -> str:
        return f"FetchAnswer(version={self._version}, bytes={len(self._data) - self._at})"

    def read(self) -> Fetched:
        """Walks the envelope.

        Raises:
            AnswerFormatError: a length points beyond the answer, or a text is none.
        """
        try:
            return _read(self._version, self._data, self._at)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise AnswerFormatError(f"the answer to a fetch is damaged: {error}") from error


def _lazily(version: int) -> Any:
    """A class as a connection wants one of each answer: its ``decode`` leaves the bytes alone."""

    class Lazy:
        API_KEY: ClassVar[int] = FETCH
        API_VERSION: ClassVar[int] = version

        @staticmethod
        def decode(data: BytesIO) -> FetchAnswer:
            return FetchAnswer(version, data.getvalue(), data.tell())  # the same bytes, no copy

    return Lazy


class FetchStruct(RequestStruct):
    """A request in one version."""

    API_KEY = FETCH
    API_VERSION = 4
    RESPONSE_TYPE: ClassVar[Any] = _lazily(4)
    SCHEMA: ClassVar[Schema] = Schema()

    def __init__(self, limits: FetchLimits, request: SessionRequest) -> None:
        super().__init__()
        self.limits = limits
        self.request = request

    def encode(self) -> bytes:
        """The request's bytes, behind its head."""
        return b"".join(_encoded(self.API_VERSION, self.limits, self.request))

    def __repr__(self) -> str:
        asked = self.request
        return (
            f"{type(self).__name__}(session={asked.session}, epoch={asked.epoch}, "
            f"changed={len(asked.changed)} of {len(asked.asks)})"
        )


class FetchV11(FetchStruct):
    """Sessions, epochs, racks."""

    API_VERSION = 11
    RESPONSE_TYPE: ClassVar[Any] = _lazily(11)


class FetchV12(FetchStruct):
    """The epoch of the last record."""

    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE: ClassVar[Any] = _lazily(12)


class FetchV13(FetchV12):
    """Topics by id."""

    API_VERSION = 13
    RESPONSE_TYPE: ClassVar[Any] = _lazily(13)


class FetchRequest(Request[FetchStruct | FetchV11 | FetchV12 | FetchV13]):
    """A fetch, in the highest version that the broker has and that can say it."""

    API_KEY = FETCH

    def __init__(self, limits: FetchLimits, request: SessionRequest) -> None:
        self.limits = limits
        self.request = request

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> FetchStruct:
        """The request as it is sent; topics whose ids are not known are named."""
        known = dict(versions)
        if not self.request.by_id and FETCH in known:
            least, most = known[FETCH]
            known[FETCH] = least, min(most, IDS - 1)
        found: FetchStruct = super().prepare(known)
        return found

    def build(self, request_struct_class: type[FetchStruct]) -> FetchStruct:
        """The request in one version."""
        return request_struct_class(self.limits, self.request)


def _encoded(version: int, limits: FetchLimits, request: SessionRequest) -> Iterator[bytes]:
    yield struct.pack(
        ">iiiib", CONSUMER, limits.max_wait, limits.min_bytes, limits.max_bytes, limits.isolation
    )
    if version < SESSIONS:
        yield from _topics(version, request.asks)
        return
    yield struct.pack(">ii", request.session, request.epoch)
    yield from _topics(version, request.changed)
    yield from _forgotten(version, _forgettable(version, request))
    rack = limits.rack.encode()
    yield (_varint(len(rack) + 1) if version >= TAGS else struct.pack(">h", len(rack))) + rack
    if version >= TAGS:
        yield b"\0"


def _topics(version: int, asks: Mapping[TopicPartition, Ask]) -> Iterator[bytes]:
    by_topic: dict[tuple[str, bytes | None], list[bytes]] = defaultdict(list)
    for tp, ask in asks.items():
        by_topic[tp.topic, ask.topic_id].append(_partition(version, tp.partition, ask))
    yield _count(version, len(by_topic))
    for (topic, topic_id), partitions in by_topic.items():
        yield _topic(version, topic, topic_id)
        yield _count(version, len(partitions))
        yield from partitions
        if version >= TAGS:
            yield b"\0"


def _partition(version: int, number: int, ask: Ask) -> bytes:
    if version >= TAGS:
        packed = (number, ask.leader_epoch, ask.offset, ask.last_epoch, NO_OFFSET, ask.max_bytes)
        return struct.pack(">iiqiqib", *packed, 0)
    if version >= EPOCHS:
        told = (number, ask.leader_epoch, ask.offset, NO_OFFSET, ask.max_bytes)
        return struct.pack(">iiqqi", *told)
    return struct.pack(">iqi", number, ask.offset, ask.max_bytes)


def _forgettable(version: int, request: SessionRequest) -> Mapping[TopicPartition, bytes | None]:
    """Without topics that were made again, where they are named: a broker adds first, and then forgets."""
    if version >= IDS:
        return request.forgotten
    asks, forgotten = request.asks, request.forgotten
    return {tp: topic_id for tp, topic_id in forgotten.items() if tp not in asks}


def _forgotten(version: int, forgotten: Mapping[TopicPartition, bytes | None]) -> Iterator[bytes]:
    by_topic: dict[tuple[str, bytes | None], list[int]] = defaultdict(list)
    for tp, topic_id in forgotten.items():
        by_topic[tp.topic, topic_id].append(tp.partition)
    yield _count(version, len(by_topic))
    for (topic, topic_id), numbers in by_topic.items():
        yield _topic(version, topic, topic_id)
        yield _count(version, len(numbers))
        yield struct.pack(f">{len(numbers)}i", *numbers)
        if version >= TAGS:
            yield b"\0"


def _topic(version: int, topic: str, topic_id: bytes | None) -> bytes:
    if version >= IDS:
        return topic_id or bytes(16)  # every one is known: see `FetchRequest.prepare`
    name = topic.encode()
    return (_varint(len(name) + 1) if version >= TAGS else struct.pack(">h", len(name))) + name


def _count(version: int, count: int) -> bytes:
    return _varint(count + 1) if version >= TAGS else struct.pack(">i", count)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= MORE:
        found.append(value & 0x7F | MORE)
        value >>= 7
    found.append(value)
    return bytes(found)


# -- answers ----------------------------------------------------------------------------------


class PartitionAnswer(NamedTuple):
    """What came of one partition.

    Attributes:
        topic: its name, or its id of 16 bytes.
        error: Kafka's error code; 0 for none.
        aborted: producer and first offset of each aborted transaction in the records.
        replica: the node that is to be asked from now on; -1: whoever answered.
        diverging: epoch and end offset up to which the leader's log is as the reader knows it, where
            it is not so as far as it was asked.
        records: record batches; the last may be cut off.
    """

    topic: str | bytes
    partition: int
    error: int
    highwater: int
    last_stable: int
    log_start: int
    aborted: Sequence[tuple[int, int]]
    replica: int
    diverging: tuple[int, int] | None
    records: bytes


class Fetched(NamedTuple):
    """An answer.

    Attributes:
        throttle: milliseconds that the broker wants to be left alone.
        error: Kafka's error code for the fetch as a whole, which is about the session.
        session: its number; 0 for none.
    """

    throttle: int
    error: int
    session: int
    partitions: list[PartitionAnswer]


HEAD_4 = struct.Struct(">ihqq")
"""Partition, error, high watermark, last stable offset."""
HEAD_11 = struct.Struct(">ihqqq")
"""With the log's first offset."""
ABORTED = struct.Struct(">qq")
INT32, INT16 = struct.Struct(">i"), struct.Struct(">h")
SESSION = struct.Struct(">ihi")
DIVERGING = 0
"""The tag of a partition's diverging epoch."""


def _read(version: int, data: bytes, at: int) -> Fetched:
    if version >= SESSIONS:
        throttle, error, session = SESSION.unpack_from(data, at)
        at += SESSION.size
    else:
        (throttle,), error, session = INT32.unpack_from(data, at), 0, 0
        at += INT32.size
    found: list[PartitionAnswer] = []
    topics, at = _read_count(version, data, at)
    for _ in range(topics):
        at = _read_topic(version, data, at, found)
    if version >= TAGS:
        at = _skip_tags(data, at)
    if at != len(data):
        raise AnswerFormatError(f"{len(data) - at} bytes are left behind the answer to a fetch")
    return Fetched(throttle, error, session, found)


def _read_topic(version: int, data: bytes, at: int, found: list[PartitionAnswer]) -> int:
    topic: str | bytes
    if version >= IDS:
        topic, at = _cut(data, at, 16), at + 16
    else:
        size, at = _read_size(version, data, at, INT16)
        topic, at = _cut(data, at, size).decode(), at + size
    partitions, at = _read_count(version, data, at)
    read = _read_flexible if version >= TAGS else _read_partition
    for _ in range(partitions):
        part, at = read(version, data, at, topic)
        found.append(part)
    return _skip_tags(data, at) if version >= TAGS else at


def _read_partition(
    version: int, data: bytes, at: int, topic: str | bytes
) -> tuple[PartitionAnswer, int]:
    log_start = replica = -1
    if version >= SESSIONS:
        number, error, highwater, stable, log_start = HEAD_11.unpack_from(data, at)
        at += HEAD_11.size
    else:
        number, error, highwater, stable = HEAD_4.unpack_from(data, at)
        at += HEAD_4.size
    (count,) = INT32.unpack_from(data, at)
    at += INT32.size
    aborted = []
    _check(data, at, max(count, 0) * ABORTED.size)
    for _ in range(count):
        aborted.append(ABORTED.unpack_from(data, at))
        at += ABORTED.size
    if version >= SESSIONS:
        (replica,) = INT32.unpack_from(data, at)
        at += INT32.size
    size, at = _read_size(version, data, at, INT32)
    records = _cut(data, at, size)
    found = (number, error, highwater, stable, log_start, aborted, replica, None, records)
    return PartitionAnswer(topic, *found), at + size


def _read_flexible(
    version: int, data: bytes, at: int, topic: str | bytes
) -> tuple[PartitionAnswer, int]:
    number, error, highwater, stable, log_start = HEAD_11.unpack_from(data, at)
    count, at = _read_count(version, data, at + HEAD_11.size)
    aborted = []
    for _ in range(count):
        aborted.append(ABORTED.unpack_from(data, at))
        at = _skip_tags(data, at + ABORTED.size)
    (replica,) = INT32.unpack_from(data, at)
    size, at = _read_size(version, data, at + INT32.size, INT32)
    records = _cut(data, at, size)
    at += size
    diverging = None
    if data[at]:
        diverging, at = _read_tags(data, at)
    else:
        at += 1
    found = (number, error, highwater, stable, log_start, aborted, replica, diverging, records)
    return PartitionAnswer(topic, *found), at


def _read_tags(data: bytes, at: int) -> tuple[tuple[int, int] | None, int]:
    """The diverging epoch, if it is among them: epoch, offset, and no tags of its own."""
    diverging = None
    tags, at = _read_varint(data, at)
    for _ in range(tags):
        tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        _check(data, at, size)
        if tag == DIVERGING:
            diverging = struct.unpack_from(">iq", data[at : at + size])
        at += size
    return diverging, at


def _skip_tags(data: bytes, at: int) -> int:
    tags, at = _read_varint(data, at)
    for _ in range(tags):
        _tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        _check(data, at, size)
        at += size
    return at


def _read_count(version: int, data: bytes, at: int) -> tuple[int, int]:
    """Entries of an array; there are as many bytes at least. None is as good as 0."""
    count, at = _read_size(version, data, at, INT32)
    _check(data, at, count)
    return count, at


def _read_size(version: int, data: bytes, at: int, plain: struct.Struct) -> tuple[int, int]:
    """A length; that of nothing is 0."""
    if version >= TAGS:
        size, at = _read_varint(data, at)
        return max(size - 1, 0), at
    (size,) = plain.unpack_from(data, at)
    return max(size, 0), at + plain.size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < MORE:
            return value, at
        shift += 7
        if shift > LAST_SHIFT:
            raise AnswerFormatError("a number of the answer to a fetch has no end")


def _cut(data: bytes, at: int, size: int) -> bytes:
    _check(data, at, size)
    return data[at : at + size]


def _check(data: bytes, at: int, size: int) -> None:
    if size > len(data) - at:
        raise AnswerFormatError(f"{size} bytes where {len(data) - at} of the answer are left")
