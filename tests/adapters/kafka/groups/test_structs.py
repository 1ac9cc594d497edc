"""Requests as bytes, and what a real Kafka makes of them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.group import (
    HeartbeatResponse_v1,
    JoinGroupResponse_v2,
    JoinGroupResponse_v5,
    LeaveGroupResponse_v1,
    ProtocolMetadata,
    SyncGroupResponse_v1,
    SyncGroupResponse_v3,
)

from consumer_sdk.adapters.kafka.client.lookups import (
    GroupOffset,
    GroupOffsets,
    OffsetFetch,
    group_offsets_in,
)
from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitByName, OffsetEntry
from consumer_sdk.adapters.kafka.groups import structs
from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
)
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire
from tests.adapters.kafka.groups.asking import Line, line_to
from tests.adapters.kafka.harness import KafkaHarness

NEWEST = 99
MEMBER_ID_REQUIRED, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER = 79, 113, 25
INVALID_PATTERN = 128
ONE, TWO = bytes(range(16)), bytes(range(16, 32))

JOIN = JoinGroup("g", "me", "static", 45.0, 300.5, (("range", b"r"), ("sticky", b"s")), "why")
SYNC = SyncGroup("g", 7, "me", "static", "range", (("me", b"mine"), ("you", b"yours")))
HEARTBEAT = Heartbeat("g", 7, "me", "static")
LEAVE = LeaveGroup("g", "me", "static")
FULL = ConsumerHeartbeat(
    *("g", "me", 0, "static", "rack", 300.0, ("t", "u"), None, "uniform"),
    {TWO: frozenset({3, 1}), ONE: frozenset()},
)


def sent(request: Request, newest: int) -> Any:
    """What a broker reads that knows no version after ``newest``."""
    wire = to_wire(request)
    made = wire.prepare({wire.API_KEY: (0, newest)})
    return type(made).decode(made.encode())


@pytest.mark.parametrize(
    "request_, newest, version",
    [
        (JOIN, 4, 2),
        (JOIN, 5, 5),
        (JOIN, 8, 5),
        (JOIN, 9, 9),
        (SYNC, 2, 1),
        (SYNC, 3, 3),
        (SYNC, 5, 5),
        (HEARTBEAT, 2, 1),
        (HEARTBEAT, 3, 3),
        (HEARTBEAT, 4, 4),
        (LEAVE, 2, 1),
        (LEAVE, 3, 3),
        (LEAVE, 5, 4),
        (FULL, 0, 0),
        (FULL, 1, 1),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else type(value).__name__,
)
def test_broker_reads_what_was_said_in_the_newest_version_it_knows(
    request_: Request, newest: int, version: int
) -> None:
    """A broker that knows no static members is told of none, and none gets what its version has no field for."""
    wire = to_wire(request_)
    made = wire.prepare({wire.API_KEY: (0, newest)})
    assert (wire.API_KEY, version) == (made.API_KEY, made.API_VERSION)
    assert ("tags" in made.SCHEMA.names) == made.FLEXIBLE_VERSION
    read = sent(request_, newest)
    assert read.encode() == made.encode()
    found = read.to_object()
    assert found["group"] == "g"
    static = [name for name in ("group_instance_id", "instance_id") if name in found]
    assert [found[name] for name in static] == ["static"] * len(static)


def test_join_carries_timeouts_in_milliseconds_and_every_assignor() -> None:
    """The one it likes best comes first."""
    found = sent(JOIN, NEWEST)
    assert (found.session_timeout, found.rebalance_timeout) == (45_000, 300_500)
    assert found.group_protocols == [("range", b"r"), ("sticky", b"s")]
    assert (found.protocol_type, found.reason) == ("consumer", "why")


def test_requests_of_a_generation_say_all_of_it() -> None:
    """The leader's assignment goes to each member by its id."""
    head = {"group": "g", "generation_id": 7, "member_id": "me", "group_instance_id": "static"}
    shares = [
        {"member_id": "me", "member_metadata": b"mine"},
        {"member_id": "you", "member_metadata": b"yours"},
    ]
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    assert sent(HEARTBEAT, NEWEST).to_object() == head | {"tags": {}}
    assert sent(SYNC, NEWEST).to_object() == {
        **head,
        **names,
        "group_assignment": shares,
        "tags": {},
    }
    assert sent(JOIN, NEWEST).member_id == "me"


def test_reason_is_cut_to_what_a_broker_takes() -> None:
    """A longer one is refused; none is none."""
    assert len(sent(replace(JOIN, reason="x" * 1000), NEWEST).reason) == 255
    assert sent(replace(JOIN, reason=""), NEWEST).reason is None


@pytest.mark.parametrize("newest", [2, 3, 4])
def test_leave_names_the_member(newest: int) -> None:
    """Old brokers take one, newer ones several."""
    found = sent(LEAVE, newest)
    assert getattr(found, "member_id", "me") == "me"
    assert getattr(found, "members", [("me", "static")]) == [("me", "static")]


def test_full_heartbeat_lists_its_partitions_in_order() -> None:
    """Partitions are in order, so that the same request is the same bytes."""
    found = sent(FULL, NEWEST)
    assert (found.member_id, found.member_epoch, found.rack) == ("me", 0, "rack")
    assert (found.group, found.instance_id) == ("g", "static")
    assert (found.rebalance_timeout, found.topics, found.pattern) == (300_000, ["t", "u"], None)
    assert (found.assignor, found.owned) == ("uniform", [(ONE, []), (TWO, [1, 3])])


def test_unchanged_fields_are_left_out() -> None:
    """The broker keeps what it knows."""
    found = sent(ConsumerHeartbeat("g", "me", 5), NEWEST)
    assert (found.rebalance_timeout, found.topics, found.pattern) == (-1, None, None)
    assert (found.instance_id, found.rack, found.assignor, found.owned) == (None,) * 4


def test_pattern_needs_a_broker_that_evaluates_it() -> None:
    """Kafka 3.7 to 3.9 would take the request without it, and assign nothing."""
    request = to_wire(replace(FULL, topics=(), pattern="^t.*"))
    with pytest.raises(IncompatibleBrokerVersion, match="evaluates no patterns"):
        request.prepare({68: (0, 0)})
    assert sent(replace(FULL, pattern=""), 0).topics == ["t", "u"]  # there is none to end
    assert sent(replace(FULL, topics=(), pattern="^t.*"), 1).pattern == "^t.*"


def test_broker_without_the_consumer_protocol_is_told_apart() -> None:
    """The client raises before anything is sent."""
    with pytest.raises(IncompatibleBrokerVersion):
        to_wire(FULL).prepare({11: (2, 9)})


def told(response: Any) -> Answer:
    """What we read of a response as a broker sends it."""
    return from_wire(type(response).decode(response.encode()))


@pytest.mark.parametrize(
    "response, answer",
    [
        (
            JoinGroupResponse_v2(0, 0, 7, "range", "me", "me", [("me", b"m"), ("you", b"y")]),
            JoinAnswer(0, 7, "range", "me", "me", (("me", None, b"m"), ("you", None, b"y"))),
        ),
        (
            JoinGroupResponse_v5(0, 0, 7, "range", "me", "me", [("me", "static", b"m")]),
            JoinAnswer(0, 7, "range", "me", "me", (("me", "static", b"m"),)),
        ),
        (
            structs.JoinGroupResponseV9(
                *(0, 0, 7, "consumer", "range", "me", True, "me", [("me", "static", b"m")], {})
            ),
            JoinAnswer(0, 7, "range", "me", "me", (("me", "static", b"m"),), skip_assignment=True),
        ),
        (
            structs.JoinGroupResponseV9(0, 79, -1, None, None, "", False, "new", [], {}),
            JoinAnswer(79, -1, "", "", "new"),
        ),
        (
            structs.JoinGroupResponseV9(0, 79, -1, None, None, "", False, "new", None, {}),
            JoinAnswer(79, -1, "", "", "new"),
        ),
        (structs.SyncGroupResponseV5(0, 27, None, None, None, {}), SyncAnswer(27)),
        (SyncGroupResponse_v1(0, 0, b"mine"), SyncAnswer(0, b"mine")),
        (SyncGroupResponse_v3(0, 27, b""), SyncAnswer(27)),
        (structs.SyncGroupResponseV5(0, 0, "consumer", "range", b"x", {}), SyncAnswer(0, b"x")),
        (HeartbeatResponse_v1(0, 27), HeartbeatAnswer(27)),
        (structs.HeartbeatResponseV3(0, 0), HeartbeatAnswer(0)),
        (structs.HeartbeatResponseV4(0, 25, {}), HeartbeatAnswer(25)),
        (LeaveGroupResponse_v1(0, 25), LeaveAnswer(25)),
        (structs.LeaveGroupResponseV3(0, 0, [("me", None, 0)]), LeaveAnswer(0)),
        (structs.LeaveGroupResponseV3(0, 16, []), LeaveAnswer(16)),
        (structs.LeaveGroupResponseV4(0, 0, [("me", "static", 82)], {}), LeaveAnswer(82)),
        (
            structs.ConsumerHeartbeatResponseV0(0, 110, "fenced", None, 0, 0, None, {}),
            ConsumerHeartbeatAnswer(110, "fenced", interval=0.0),
        ),
        (
            structs.ConsumerHeartbeatResponseV1(
                *(0, 0, None, "me", 3, 5000, ([(ONE, [0, 2]), (TWO, [])],), {})
            ),
            ConsumerHeartbeatAnswer(
                *(0, "", "me", 3, 5.0, {ONE: frozenset({0, 2}), TWO: frozenset()})
            ),
        ),
        (
            structs.ConsumerHeartbeatResponseV1(0, 0, None, "me", 3, 5000, ([],), {}),
            ConsumerHeartbeatAnswer(0, "", "me", 3, 5.0, {}),
        ),
        (
            structs.ConsumerHeartbeatResponseV1(0, 0, None, "me", 3, 5000, (None,), {}),
            ConsumerHeartbeatAnswer(0, "", "me", 3, 5.0, {}),
        ),
        (
            structs.ConsumerHeartbeatResponseV1(0, 0, None, "me", 3, 5000, ([(ONE, None)],), {}),
            ConsumerHeartbeatAnswer(0, "", "me", 3, 5.0, {ONE: frozenset()}),
        ),
    ],
)
def test_answer_is_read_in_every_version(response: Any, answer: Answer) -> None:
    """An empty assignment is not the same as one that has not changed; a list that is null is empty."""
    assert told(response) == answer


def test_offset_fetch_says_who_asks_where_the_broker_hears_it() -> None:
    """Older brokers get the client's own request, without the member."""
    request = OffsetFetch("g", [TopicPartition("t", 1)], member_id="me", epoch=4)
    made = request.prepare({9: (1, 10)})
    assert made.groups == [("g", "me", 4, [("t", [1])])]
    assert type(made).decode(made.encode()).require_stable
    for newest in (1, 2, 3, 5, 8):
        assert request.prepare({9: (1, newest)}).topics == [("t", [1])]


def test_struct_shows_itself_in_the_clients_log() -> None:
    """The client prints every request where its log is at DEBUG."""
    assert "ConsumerHeartbeatRequestV1" in repr(to_wire(FULL).prepare({68: (0, 1)}))


# -- a real Kafka -------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.parametrize("instance", [None, "static"])
async def test_classic_member_joins_alone_syncs_lives_and_leaves(
    harness: KafkaHarness, instance: str | None
) -> None:
    """A dynamic member is given its id first (KIP-394); afterwards the coordinator knows it no more."""
    group = f"classic-{harness.uid}"
    # Kafka 4 reads the subscription, and answers nothing to one that it cannot.
    subscription = ProtocolMetadata(0, ["t"], b"").encode()
    join = JoinGroup(group, "", instance, 30.0, 60.0, (("range", subscription),), "test")
    async with line_to(harness.servers, group) as line:
        joined = await line.ask(join)
        assert isinstance(joined, JoinAnswer)
        if joined.error == MEMBER_ID_REQUIRED:
            assert instance is None
            joined = await line.ask(replace(join, member_id=joined.member_id))
        assert isinstance(joined, JoinAnswer)
        me = joined.member_id
        assert (joined.error, joined.protocol, joined.leader_id) == (0, "range", me)
        assert joined.members == ((me, instance, subscription),)
        names = (group, joined.generation, me, instance)
        sync = SyncGroup(*names, "range", ((me, b"assignment"),))
        assert await line.ask(sync) == SyncAnswer(0, b"assignment")
        assert await line.ask(Heartbeat(*names)) == HeartbeatAnswer(0)
        assert await line.ask(LeaveGroup(group, me, instance)) == LeaveAnswer(0)
        assert (await line.ask(Heartbeat(*names))).error == UNKNOWN_MEMBER


async def heartbeat(line: Line, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
    """What the coordinator tells a member."""
    answer = await line.ask(request)
    assert isinstance(answer, ConsumerHeartbeatAnswer)
    return answer


@pytest.mark.kafka
async def test_consumer_member_joins_commits_and_leaves(harness: KafkaHarness) -> None:
    """Commits and their look-up carry the epoch, and the broker refuses another one."""
    topic = await harness.create_stream(2)
    tp, group, me = TopicPartition(topic, 1), f"consumer-{harness.uid}", str(uuid.uuid4())
    join = ConsumerHeartbeat(
        group, me, 0, rebalance_timeout=60.0, topics=(topic,), assignor="uniform", owned={}
    )
    async with line_to(harness.servers, group) as line:
        joined = await heartbeat(line, join)
        while not joined.assignment:  # a busy coordinator hears late of a new topic
            await asyncio.sleep(0.2)
            joined = await heartbeat(line, ConsumerHeartbeat(group, me, joined.epoch))
        assert joined.assignment == {await line.topic_id(topic): frozenset({0, 1})}
        assert (joined.error, joined.member_id, joined.epoch > 0) == (0, me, True)
        for epoch, code in ((joined.epoch, 0), (joined.epoch + 1, STALE_MEMBER_EPOCH)):
            commit = OffsetCommitByName(
                group, epoch, me, None, {topic: [OffsetEntry(1, 5, 3, "text")]}
            )
            assert (await line.send(commit)).topics == [(topic, [(1, code)])]
            fetch = OffsetFetch(group, [tp], member_id=me, epoch=epoch)
            offsets = {tp: None if code else GroupOffset(5, "text", 3)}
            answer = group_offsets_in(await line.send(fetch), [tp])
            assert answer == GroupOffsets(code, offsets, {})
        assert (await heartbeat(line, ConsumerHeartbeat(group, me, -1))).error == 0
        gone = await heartbeat(line, ConsumerHeartbeat(group, me, joined.epoch))
        assert (gone.error, me in gone.message) == (UNKNOWN_MEMBER, True)


@pytest.mark.kafka
async def test_broker_evaluates_a_pattern(harness: KafkaHarness) -> None:
    """Its topics come with a later heartbeat; one that cannot be read is refused with what is wrong with it."""
    topic = await harness.create_stream(2)
    group, me = f"pattern-{harness.uid}", str(uuid.uuid4())
    join = ConsumerHeartbeat(
        group, me, 0, rebalance_timeout=60.0, topics=(), pattern=f"^t.*{harness.uid}$", owned={}
    )
    async with line_to(harness.servers, group) as line:
        refused = await heartbeat(line, replace(join, pattern="((("))
        assert (refused.error, "missing closing" in refused.message) == (INVALID_PATTERN, True)
        found = await heartbeat(line, join)
        while not found.assignment:
            await asyncio.sleep(0.2)
            found = await heartbeat(line, ConsumerHeartbeat(group, me, found.epoch))
            assert found.error == 0
        assert found.assignment == {await line.topic_id(topic): frozenset({0, 1})}
