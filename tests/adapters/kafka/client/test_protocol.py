"""Requests for topics and to commit: which version a broker gets, and what a real one makes of it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.types import Int32

from consumer_sdk.adapters.kafka.client.protocol import (
    NO_TOPIC_ID,
    Nullable,
    TopicDescriptions,
    by_topic,
    milliseconds,
    plain_by_topic,
    topic_id_text,
)
from consumer_sdk.adapters.kafka.commits.metadata import at_offset
from consumer_sdk.adapters.kafka.commits.structs import (
    OffsetCommitById,
    OffsetCommitByName,
    OffsetEntry,
    TxnOffsetCommit,
    codes_in,
)
from consumer_sdk.records import AckFlush, OutcomeKind
from tests.adapters.kafka.world import World, coordinator_of

UNKNOWN_MEMBER, FENCED_INSTANCE = 25, 82
ID = bytes(range(16))


@pytest.mark.parametrize(
    "newest, version", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (11, 5), (12, 12), (13, 12)]
)
def test_topics_are_described_and_never_created(newest: int, version: int) -> None:
    """By id too from version 12 on; brokers before version 4 are not told that they shall create none."""
    cases: list[tuple[Any, list[bytes]]] = [
        *((["t", "u"], []), (["t"], [ID]), ([], [ID]), ([], []), (None, []), (None, [ID]))
    ]
    for names, ids in cases:
        made = TopicDescriptions(names, ids).prepare({3: (0, newest)})
        assert ("tags" in made.SCHEMA.names) == made.FLEXIBLE_VERSION
        assert made.encode()
        by_name = names and [(NO_TOPIC_ID, name, {}) for name in names]
        by_id: list[Any] = [(topic_id, None, {}) for topic_id in ids]
        assert (3, version) == (made.API_KEY, made.API_VERSION)
        if version < 12:
            assert made.topics == names
            assert not getattr(made, "allow_auto_topic_creation", version >= 4)
            continue
        assert made.topics == ([*(by_name or ()), *by_id] if ids else by_name)
        assert not made.allow_auto_topic_creation
        assert not made.include_topic_authorized_operations


def test_structs_of_flexible_versions_end_with_tags() -> None:
    """Those of older versions do not; one that may be missing says so by its first byte."""
    one, two = (1).to_bytes(4), (2).to_bytes(4)
    missing = Nullable(("number", Int32))
    assert (missing.encode(None), missing.encode((1,))) == (b"\xff", b"\1" + one + b"\0")
    assert missing.decode(BytesIO(b"\xff")) is None
    for present in (b"\0", b"\1"):
        assert missing.decode(BytesIO(present + one + b"\0")) == (1,)
    rows: Any = [("t", [(1, 2), (2, 1)])]
    fields = (("number", Int32), ("other", Int32))
    flexible, plain = by_topic(*fields), plain_by_topic(*fields)
    data = b"\2" + b"\2t" + b"\3" + one + two + b"\0" + two + one + b"\0" + b"\0"
    assert (flexible.encode(rows), flexible.decode(BytesIO(data))) == (data, rows)
    data = one + b"\0\1t" + two + one + two + two + one
    assert (plain.encode(rows), plain.decode(BytesIO(data))) == (data, rows)


def test_times_and_ids_are_as_kafka_has_them() -> None:
    """Milliseconds are rounded; an id is the text that Kafka's own tools print."""
    assert [milliseconds(time) for time in (0.0, 0.0004, 0.0006, 300.5)] == [0, 0, 1, 300_500]
    assert topic_id_text(ID) == "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    "newest, version, topics",
    [
        (2, 2, [("t", [(0, 5, "text")])]),
        (3, 3, [("t", [(0, 5, "text")])]),
        (6, 3, [("t", [(0, 5, "text")])]),
        (7, 7, [("t", [(0, 5, 4, "text")])]),
        (8, 7, [("t", [(0, 5, 4, "text")])]),
        (9, 9, [("t", [(0, 5, 4, "text")])]),
        (10, 9, [("t", [(0, 5, 4, "text")])]),
    ],
)
def test_broker_gets_the_newest_version_by_name_that_it_knows(
    newest: int, version: int, topics: list[object]
) -> None:
    """Brokers before Kafka 2.3 have no static members, and are told of no leader's epoch."""
    request = OffsetCommitByName("g", 3, "me", "static", {"t": [OffsetEntry(0, 5, 4, "text")]})
    made = request.prepare({8: (2, newest)})
    assert (made.API_VERSION, made.topics) == (version, topics)
    assert getattr(made, "group_instance_id", None) == ("static" if version >= 7 else None)
    assert made.encode()


@pytest.mark.parametrize("newest", [2, 3])
def test_old_broker_keeps_a_commit_as_long_as_it_keeps_any(newest: int) -> None:
    """A retention of its own would end the group's position."""
    request = OffsetCommitByName("g", 3, "me", None, {"t": [OffsetEntry(0, 5)]})
    made = request.prepare({8: (2, newest)})
    assert made.to_object() == {
        "consumer_group": "g",
        "consumer_group_generation_id": 3,
        "consumer_id": "me",
        "retention_time": -1,
        "topics": [{"topic": "t", "partitions": [{"partition": 0, "offset": 5, "metadata": ""}]}],
    }


ENTRY = {"partition": 1, "offset": 5, "leader_epoch": 4, "metadata": "text"}


def test_commit_by_id_names_no_topic() -> None:
    """A broker that does not know the version is asked by name instead."""
    topic_id = bytes(range(16))
    request = OffsetCommitById("g", 3, "me", "static", {topic_id: [OffsetEntry(1, 5, 4, "text")]})
    made = request.prepare({8: (2, 10)})
    assert type(made).decode(made.encode()).to_object() == {
        "group": "g",
        "generation": 3,
        "member": "me",
        "group_instance_id": "static",
        "topics": [{"topic": topic_id, "partitions": [ENTRY]}],
        "tags": {},
    }
    with pytest.raises(NotImplementedError):
        request.prepare({8: (2, 9)})


def test_commit_in_a_transaction_says_who_sends_it() -> None:
    """The producer, and the member: the broker refuses a former owner by either."""
    topics = {"t": [OffsetEntry(1, 5, 4, "text")]}
    request = TxnOffsetCommit("tx", "g", (2**40, 6), (3, "me", "static"), topics)
    made = request.prepare({28: (0, 5)})
    assert type(made).decode(made.encode()).to_object() == {
        "transactional_id": "tx",
        "group": "g",
        "producer_id": 2**40,
        "producer_epoch": 6,
        "generation": 3,
        "member": "me",
        "group_instance_id": "static",
        "topics": [{"topic": "t", "partitions": [ENTRY]}],
        "tags": {},
    }


def test_codes_are_those_of_each_partition() -> None:
    """Some brokers answer null for nothing."""
    assert codes_in([("t", [(0, 3), (1, 0)]), ("u", None)]) == {("t", 0): 3, ("t", 1): 0}
    assert codes_in(None) == {}


@pytest.mark.kafka
@pytest.mark.parametrize("instance, code", [("one", FENCED_INSTANCE), (None, UNKNOWN_MEMBER)])
async def test_commit_by_name_of_a_replaced_static_member_is_fenced(
    world: World, instance: str | None, code: int
) -> None:
    """The broker knows the place, and that somebody else has it now."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, group_instance_id="one") as member:
        await member.holding(1)
        coordinator = coordinator_of(member)
        request = OffsetCommitByName(
            f"{world.group}-{world.kafka.uid}",
            *(
                coordinator.stamp.epoch,
                "the one before",
                instance,
                {topic: [OffsetEntry(0, 5)]},
            ),
        )
        response = await coordinator.send(request)
        assert response.topics == [(topic, [(0, code)])]


@pytest.mark.kafka
async def test_static_member_commits_by_id(world: World) -> None:
    """What is fenced is the member that was replaced, not the one that did."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, group_instance_id="one") as member:
        (held,) = await member.holding(1)
        (outcome,) = await member.adapter.commit([AckFlush(held, 1, at_offset(5))])
        assert outcome.kind is OutcomeKind.DURABLE
