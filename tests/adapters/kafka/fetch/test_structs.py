"""Fetches as bytes: the client's schemas, and the published ones, say what is right."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.fetch import (
    FetchRequest_v4,
    FetchRequest_v11,
    FetchResponse_v4,
    FetchResponse_v11,
)
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from consumer_sdk.adapters.kafka.client.protocol import Uuid
from consumer_sdk.adapters.kafka.fetch.session import Ask, SessionRequest
from consumer_sdk.adapters.kafka.fetch.structs import (
    AnswerFormatError,
    FetchAnswer,
    FetchLimits,
    FetchRequest,
)

ID = bytes(range(16))
TEXT = CompactString("utf-8")
LIMITS = FetchLimits(500, 1, 5000, 1, "rack-é")
A, B = TopicPartition("orders", 0), TopicPartition("orders", 3)
ASKS = {A: Ask(ID, 4, 100, 3, 1000), B: Ask(ID, 4, 2**40, -1, 1000)}
GONE = {TopicPartition("orders", 7): ID}
REQUEST = SessionRequest(9, 5, ASKS, {B: ASKS[B]}, GONE, by_id=True)
RECORDS = b"record batches" * 20


def request_schema(topic: Any) -> Schema:
    """Versions 12 and 13, as Kafka publishes them."""
    return Schema(
        ("replica", Int32),
        ("max_wait", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation", Int8),
        ("session", Int32),
        ("epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic", topic),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("offset", Int64),
                        ("last_epoch", Int32),
                        ("log_start", Int64),
                        ("max_bytes", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        (
            "forgotten",
            CompactArray(
                ("topic", topic), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("rack", TEXT),
        ("tags", TaggedFields),
    )


def answer_schema(topic: Any, tags: Any = TaggedFields) -> Schema:
    """Versions 12 and 13, but for a partition's tags, which are bytes as they are.

    Args:
        tags: how those of all else are encoded.
    """
    return Schema(
        ("throttle", Int32),
        ("error", Int16),
        ("session", Int32),
        (
            "topics",
            CompactArray(
                ("topic", topic),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error", Int16),
                        ("highwater", Int64),
                        ("stable", Int64),
                        ("log_start", Int64),
                        (
                            "aborted",
                            CompactArray(("producer", Int64), ("first", Int64), ("tags", tags)),
                        ),
                        ("replica", Int32),
                        ("records", CompactBytes),
                        ("tags", Raw),
                    ),
                ),
                ("tags", tags),
            ),
        ),
        ("tags", tags),
    )


class Raw(TaggedFields):  # type: ignore[misc]  # the client has no types
    """Tags as bytes: the client's own encoding leaves out their lengths."""

    @classmethod
    def encode(cls, value: Any) -> bytes:
        """As they are."""
        return bytes(value)


DIVERGING = b"\x02\x00\x0d" + (3).to_bytes(4) + (77).to_bytes(8) + b"\0" + b"\x01\x02xy"
"""Two tags: the diverging epoch, and one that nobody knows."""


def sent(version: int, request: SessionRequest = REQUEST) -> Any:
    """The request in a version."""
    return FetchRequest(LIMITS, request).prepare({1: (0, version)})


def test_request_of_version_4_is_what_the_client_would_send() -> None:
    """It knows no sessions: everything is asked for."""
    expected = FetchRequest_v4(
        -1, 500, 1, 5000, 1, [("orders", [(0, 100, 1000), (3, 2**40, 1000)])]
    )
    assert sent(4).encode() == expected.encode()


def test_request_of_version_11_is_what_the_client_would_send() -> None:
    """Sessions, epochs of leaders, a rack."""
    topics = [("orders", [(3, 4, 2**40, -1, 1000)])]
    expected = FetchRequest_v11(-1, 500, 1, 5000, 1, 9, 5, topics, [("orders", [7])], LIMITS.rack)
    assert sent(11).encode() == expected.encode()


@pytest.mark.parametrize("version, topic, kind", [(12, "orders", TEXT), (13, ID, Uuid)])
def test_request_of_later_versions_is_what_kafka_publishes(
    version: int, topic: Any, kind: Any
) -> None:
    """The last record's epoch; topics by name, then by id."""
    partitions: Any = [(3, 4, 2**40, -1, -1, 1000, {})]
    values: Any = (-1, 500, 1, 5000, 1, 9, 5, [(topic, partitions, {})], [(topic, [7], {})])
    expected = request_schema(kind).encode((*values, LIMITS.rack, {}))
    assert sent(version).encode() == expected
    assert version == sent(version).API_VERSION


@pytest.mark.parametrize("count", [126, 127, 128, 300])
def test_lengths_of_more_than_one_byte_are_what_kafka_publishes(count: int) -> None:
    """Of a topic with many partitions, of many that are forgotten, of long names."""
    asks = {TopicPartition("t" * count, n): ASKS[A] for n in range(count)}
    gone = dict.fromkeys([TopicPartition("u" * count, n) for n in range(count)], ID)
    limits = LIMITS._replace(rack="r" * count)
    request = SessionRequest(9, 5, asks, asks, gone, by_id=False)
    partitions: Any = [(n, 4, 100, 3, -1, 1000, {}) for n in range(count)]
    topics: Any = [("t" * count, partitions, {})]
    forgotten: Any = [("u" * count, list(range(count)), {})]
    values: Any = (-1, 500, 1, 5000, 1, 9, 5, topics, forgotten, limits.rack, {})
    made = FetchRequest(limits, request).prepare({1: (0, 12)})
    assert made.encode() == request_schema(TEXT).encode(values)


def test_topics_whose_ids_are_not_known_are_named() -> None:
    """Also to a broker that would take ids."""
    asks = {A: ASKS[A]._replace(topic_id=None)}
    request = SessionRequest(0, 0, asks, asks, {}, by_id=False)
    assert sent(18, request).API_VERSION == 12
    assert b"orders" in sent(18, request).encode()
    assert sent(18).API_VERSION == 13


@pytest.mark.parametrize("by_id", [True, False])
def test_broker_that_knows_no_fetch_is_refused(*, by_id: bool) -> None:
    """Whatever is known of the topics."""
    with pytest.raises(IncompatibleBrokerVersion):
        FetchRequest(LIMITS, REQUEST._replace(by_id=by_id)).prepare({})


def test_request_says_how_much_of_its_session_has_changed() -> None:
    """In log lines of the connection."""
    assert repr(sent(12)) == "FetchV12(session=9, epoch=5, changed=1 of 2)"


@pytest.mark.parametrize("version, forgotten", [(11, 0), (12, 0), (13, 1)])
def test_topic_made_again_is_not_forgotten_by_its_name(version: int, forgotten: int) -> None:
    """A broker adds first, and then forgets: by its name it would forget the new one, for ever."""
    again = {A: ASKS[A]._replace(topic_id=bytes(16))}
    request = SessionRequest(9, 5, again, again, {A: ID}, by_id=True)
    plain = SessionRequest(9, 5, again, again, {}, by_id=True)
    is_told = sent(version, request).encode() != sent(version, plain).encode()
    assert is_told == bool(forgotten)


def read(version: int, data: bytes) -> Any:
    """As a connection hands it over: behind a head of eight bytes."""
    frame = BytesIO(b"the head" + data)
    frame.seek(8)
    answer: FetchAnswer = sent(version).RESPONSE_TYPE.decode(frame)
    return answer.read()


def answer_of(version: int, tags: bytes = b"\0") -> bytes:
    """The same answer in each version, as far as it can say it."""
    aborted = [(5, 90), (6, 95)]
    if version == 4:
        parts: list[Any] = [(0, 0, 110, 105, aborted, RECORDS), (3, 6, -1, -1, None, b"")]
        return bytes(FetchResponse_v4(20, [("orders", parts)]).encode())
    if version == 11:
        parts = [(0, 0, 110, 105, 10, aborted, 2, RECORDS), (3, 6, -1, -1, -1, None, -1, None)]
        return bytes(FetchResponse_v11(20, 0, 9, [("orders", parts)]).encode())
    tagged: Any = [(*each, {}) for each in aborted]
    parts = [
        (0, 0, 110, 105, 10, tagged, 2, RECORDS, b"\0"),
        (3, 6, -1, -1, -1, None, -1, None, tags),
    ]
    topic, kind = (ID, Uuid) if version == 13 else ("orders", TEXT)
    return bytes(answer_schema(kind).encode((20, 0, 9, [(topic, parts, {})], {})))


@pytest.mark.parametrize("version", [4, 11, 12, 13])
def test_answer_is_read_in_every_version(version: int) -> None:
    """With nulls for what is not there."""
    found = read(version, answer_of(version))
    assert found[:3] == (20, 0, 0 if version == 4 else 9)
    first, second = found.partitions
    assert first.topic == (ID if version == 13 else "orders")
    assert first[1:5] == (0, 0, 110, 105)
    assert first.log_start == (-1 if version == 4 else 10)
    assert first.aborted == [(5, 90), (6, 95)]
    assert first.replica == (-1 if version == 4 else 2)
    assert first.records == RECORDS
    assert second[1:5] == (3, 6, -1, -1)
    assert (second.records, second.aborted, second.diverging) == (b"", [], None)


@pytest.mark.parametrize("version", [12, 13])
def test_diverging_epoch_is_read(version: int) -> None:
    """Beside a tag that nobody knows."""
    found = read(version, answer_of(version, DIVERGING))
    assert found.partitions[1].diverging == (3, 77)


@pytest.mark.parametrize("size", [0, 126, 127, 128, 255, 256, 16_383])
def test_records_of_every_length_are_read(size: int) -> None:
    """Also where a byte of the length has nothing but that another one follows."""
    part: Any = (0, 0, 110, 105, 10, [], 2, b"r" * size, b"\0")
    data = answer_schema(TEXT).encode((20, 0, 9, [("orders", [part], {})], {}))
    assert read(12, data).partitions[0].records == b"r" * size


def test_tags_that_nobody_knows_are_passed_over() -> None:
    """A later broker may have them anywhere (KIP-482)."""
    tags = b"\x02\x07\x03abc\x81\x01\x00"
    part: Any = (0, 0, 110, 105, 10, [(5, 90, tags), (6, 95, tags)], 2, RECORDS, tags)
    topic: Any = ("orders", [part, part], tags)
    found = read(12, answer_schema(TEXT, Raw).encode((20, 0, 9, [topic, topic], tags)))
    assert len(found.partitions) == 4
    for each in found.partitions:
        assert (each.topic, each.aborted, each.records) == ("orders", [(5, 90), (6, 95)], RECORDS)
        assert each.diverging is None


@pytest.mark.parametrize("more, text", [(4, "bytes"), (5, "has no end")])
def test_number_without_an_end_is_refused(more: int, text: str) -> None:
    """Five bytes are enough for any that there is."""
    head = (20).to_bytes(4) + bytes(2) + (9).to_bytes(4)
    with pytest.raises(AnswerFormatError, match=text):
        read(12, head + b"\xff" * more + b"\x01" + bytes(50))


@pytest.mark.parametrize("version", [4, 11, 12, 13])
def test_answer_that_is_cut_off_is_refused(version: int) -> None:
    """At whatever byte, and if something is behind it."""
    whole = answer_of(version, DIVERGING)
    for end in range(len(whole)):
        with pytest.raises(AnswerFormatError):
            read(version, whole[:end])
    with pytest.raises(AnswerFormatError, match="1 bytes are left"):
        read(version, whole + b"\0")


@pytest.mark.parametrize("version", [11, 12])
def test_count_beyond_the_answer_is_refused_at_once(version: int) -> None:
    """Two thousand million of anything."""
    head = (20).to_bytes(4) + bytes(2) + (9).to_bytes(4)
    count = b"\x7f\xff\xff\xff" if version == 11 else b"\xff\xff\xff\xff\x07"
    with pytest.raises(AnswerFormatError, match="bytes where"):
        read(version, head + count + bytes(50))


def test_bytes_of_the_frame_are_not_copied_before_they_are_read() -> None:
    """The connection's task does nothing but hand them over."""
    data = b"head" + answer_of(12)
    frame = BytesIO(data)
    frame.seek(4)
    answer: Any = sent(12).RESPONSE_TYPE.decode(frame)
    assert answer._data is data
    assert repr(answer) == f"FetchAnswer(version=12, bytes={len(data) - 4})"
