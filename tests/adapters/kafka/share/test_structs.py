"""What a member says and hears, as bytes on the wire."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException

from consumer_sdk.adapters.kafka.share import structs
from consumer_sdk.adapters.kafka.share.messages import (
    AckBatch,
    AcknowledgedPartition,
    AckType,
    AcquiredRange,
    AcquireMode,
    FetchedPartition,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
    TopicIdPartition,
)

TOPIC = bytes(range(16))
TIP = TopicIdPartition(TOPIC, 3)
VERSIONS = {76: (1, 1), 78: (1, 2), 79: (1, 2)}


def sent(request: Any, version: int) -> dict[str, Any]:
    """The fields of a request in one version, as they come out at the other end."""
    wire = structs.to_wire(request)
    made = wire.prepare(dict.fromkeys(VERSIONS, (1, version)))
    assert (wire.API_KEY, version) == (made.API_KEY, made.API_VERSION)
    names = made.SCHEMA.names
    assert ("tags" in names) == made.FLEXIBLE_VERSION
    return dict(zip(names, made.SCHEMA.decode(BytesIO(made.encode())), strict=True))


def heard(response: Any, *fields: Any) -> Any:
    """An answer of these fields."""
    return structs.from_wire(response.decode(BytesIO(response.SCHEMA.encode([*fields, {}]))))


def test_types_have_kafkas_numbers() -> None:
    """A broker reads those."""
    assert {each.name: int(each) for each in AckType} == {
        "GAP": 0, "ACCEPT": 1, "RELEASE": 2, "REJECT": 3, "RENEW": 4,
    }  # fmt: skip
    assert (int(AcquireMode.BATCH_OPTIMIZED), int(AcquireMode.RECORD_LIMIT)) == (0, 1)


def test_heartbeat_joins_with_topics_and_lives_without() -> None:
    """None is what has not changed."""
    joining = sent(ShareGroupHeartbeat("g", "me", 0, "r", ("a", "b")), 1)
    assert (joining["member_epoch"], joining["rack"], joining["topics"]) == (0, "r", ["a", "b"])
    living = sent(ShareGroupHeartbeat("g", "me", 5), 1)
    assert (living["rack"], living["topics"]) == (None, None)


@pytest.mark.parametrize("version", [1, 2])
def test_fetch_says_acks_and_what_is_forgotten(version: int) -> None:
    """Modes are told to brokers that know them."""
    request = ShareFetch(
        "g",
        "me",
        7,
        max_wait=0.25,
        acquire_mode=AcquireMode.RECORD_LIMIT,
        topics={TIP: [AckBatch(1, 3, (1, 0, 2)), AckBatch(5, 9, (1,))]},
        forgotten=frozenset({TopicIdPartition(TOPIC, 1), TopicIdPartition(TOPIC, 0)}),
    )
    found = sent(request, version)
    assert (found["epoch"], found["max_wait"]) == (7, 250)
    assert found["topics"] == [(TOPIC, [(3, [(1, 3, [1, 0, 2]), (5, 9, [1])])])]
    assert found["forgotten"] == [(TOPIC, [0, 1])]
    assert found.get("acquire_mode") == (1 if version > 1 else None)


@pytest.mark.parametrize("version", [1, 2])
def test_acknowledgement_says_whether_it_renews(version: int) -> None:
    """To brokers that know renewals."""
    request = ShareAcknowledge(
        "g", "me", 7, has_renewals=True, topics={TIP: [AckBatch(1, 1, (4,))]}
    )
    found = sent(request, version)
    assert found["topics"] == [(TOPIC, [(3, [(1, 1, [4])])])]
    assert found.get("has_renewals") == (True if version > 1 else None)


def test_answer_to_a_heartbeat_tells_the_assignment_or_that_it_is_as_before() -> None:
    """Nothing assigned is not the same as nothing told."""
    told = heard(structs.HeartbeatResponseV1, 0, 0, None, "me", 4, 5000, ([(TOPIC, [0, 3])],))
    assert told == ShareGroupHeartbeatAnswer(0, "", "me", 4, 5.0, {TOPIC: frozenset({0, 3})})
    as_before = heard(structs.HeartbeatResponseV1, 0, 25, "gone", None, 0, 0, None)
    assert as_before == ShareGroupHeartbeatAnswer(25, "gone", "", 0, 0.0, None)


@pytest.mark.parametrize("response", [structs.FetchResponseV1, structs.FetchResponseV2])
def test_answer_to_a_fetch_has_records_and_what_was_acquired(response: Any) -> None:
    """Errors of the fetch and of the acknowledgements are apart."""
    parts: list[Any] = [
        (3, 0, None, 121, "late", (-1, -1), b"batches", [(5, 9, 1), (12, 12, 2)]),
        (4, 6, "moved", 0, None, (2, 11), None, []),
    ]
    answer = heard(response, 100, 0, None, 30_000, [(TOPIC, parts)], [])
    acquired = (AcquiredRange(5, 9, 1), AcquiredRange(12, 12, 2))
    assert answer == ShareFetchAnswer(
        throttle=0.1,
        lock_timeout=30.0,
        partitions={
            TIP: FetchedPartition(
                ack_error=121, ack_message="late", records=b"batches", acquired=acquired
            ),
            TopicIdPartition(TOPIC, 4): FetchedPartition(6, "moved", leader=(2, 11)),
        },
    )


def test_answer_to_an_acknowledgement_tells_the_lock_where_the_version_has_it() -> None:
    """Version 1 tells none."""
    parts: list[Any] = [(TOPIC, [(3, 121, "late", (-1, -1))])]
    partitions = {TIP: AcknowledgedPartition(121, "late")}
    old = heard(structs.AcknowledgeResponseV1, 0, 0, None, parts, [])
    assert old == ShareAcknowledgeAnswer(partitions=partitions)
    new = heard(structs.AcknowledgeResponseV2, 0, 0, None, 15_000, parts, [])
    assert new == ShareAcknowledgeAnswer(lock_timeout=15.0, partitions=partitions)


@pytest.mark.parametrize("told, waited", [(100, 0.1), (2**31 - 1, 60.0), (-1, 0.0)])
def test_broker_is_left_alone_for_a_minute_at_most(told: int, waited: float) -> None:
    """Nothing is fetched, acknowledged or renewed meanwhile: one bit of that number is 24 days."""
    fetched = heard(structs.FetchResponseV1, told, 0, None, 30_000, [], [])
    acknowledged = heard(structs.AcknowledgeResponseV1, told, 0, None, [], [])
    assert (fetched.throttle, acknowledged.throttle) == (waited, waited)


@pytest.mark.parametrize(
    "acquired",
    [
        [(0, 2**62, 1)],
        [(0, 2**20, 1)],
        [(5, 4, 1)],
        [(-1, 3, 1)],
        [(5, 9, 1), (9, 12, 1)],
        [(5, 9, 1), (0, 3, 1)],
    ],
)
def test_ranges_that_no_broker_acquires_are_refused(acquired: Any) -> None:
    """Each offset takes memory: what an answer says must not decide how much."""
    part = (3, 0, None, 0, None, (-1, -1), b"", acquired)
    with pytest.raises(CorruptRecordException, match="acquired"):
        heard(structs.FetchResponseV1, 0, 0, None, 30_000, [(TOPIC, [part])], [])


@pytest.mark.parametrize(
    "acquired",
    [
        [(0, 2**20 - 1, 1)],
        [(7, 7 + 2**20 - 1, 1)],
        [(0, 2**19 - 1, 1), (2**19, 2**20 - 1, 2)],
        [(5, 9, 1), (10, 10, 1), (11, 12, 2)],
    ],
)
def test_ranges_of_as_many_records_as_a_broker_may_acquire_are_taken(acquired: Any) -> None:
    """In all; also side by side."""
    part = (3, 0, None, 0, None, (-1, -1), b"", acquired)
    answer = heard(structs.FetchResponseV1, 0, 0, None, 30_000, [(TOPIC, [part])], [])
    assert list(answer.partitions[TIP].acquired) == acquired


def test_ranges_are_counted_together() -> None:
    """Many small ones take as much memory as one."""
    acquired = [(7, 6 + 2**19, 1), (7 + 2**19, 7 + 2**20, 1)]
    part = (3, 0, None, 0, None, (-1, -1), b"", acquired)
    with pytest.raises(CorruptRecordException, match="acquired"):
        heard(structs.FetchResponseV1, 0, 0, None, 30_000, [(TOPIC, [part])], [])


def test_broker_that_says_nothing_says_none() -> None:
    """An array may be null on the wire."""
    assert heard(structs.HeartbeatResponseV1, 0, 0, None, "me", 4, 0, (None,)).assignment == {}
    told = heard(structs.HeartbeatResponseV1, 0, 0, None, "me", 4, 0, ([(TOPIC, None)],))
    assert told.assignment == {TOPIC: frozenset()}
    part = (3, 0, None, 0, None, (-1, -1), None, None)
    for topics, partitions in (
        (None, {}),
        ([(TOPIC, None)], {}),
        ([(TOPIC, [part])], {TIP: FetchedPartition()}),
    ):
        fetched = heard(structs.FetchResponseV1, 0, 0, None, 30_000, topics, [])
        assert fetched.partitions == partitions
    for nothing in (None, [(TOPIC, None)]):
        assert heard(structs.AcknowledgeResponseV1, 0, 0, None, nothing, []).partitions == {}
    silent = heard(structs.AcknowledgeResponseV1, 0, 0, None, [(TOPIC, [(3, 6, None, (1, 2))])], [])
    assert silent.partitions == {TIP: AcknowledgedPartition(6, "", (1, 2))}


@pytest.mark.parametrize("message", ["no right", None])
def test_refusal_of_a_whole_request_has_the_brokers_words(message: str | None) -> None:
    """If it said any."""
    fetched = heard(structs.FetchResponseV1, 0, 30, message, 30_000, [], [])
    assert fetched == ShareFetchAnswer(30, message or "")
    acknowledged = heard(structs.AcknowledgeResponseV2, 0, 30, message, 0, [], [])
    assert acknowledged == ShareAcknowledgeAnswer(30, message or "")
