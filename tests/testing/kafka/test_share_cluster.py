"""The model of a cluster with share groups answers as Kafka 4.3 does: sessions, leaders, and the group's coordinator."""

from __future__ import annotations

import random
from typing import Any

from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    AckBatch,
    AckType,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
    TopicIdPartition,
)
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    Code,
    Limits,
    PendingFetch,
    ShareCluster,
    ShareOptions,
)
from consumer_sdk.testing.kafka.share_group import assign_shared

GROUP = "g"
LOCK = 30.0


class Talk:
    """A cluster with a topic, and members that are played by hand."""

    def __init__(self, partitions: int = 1, nodes: int = 1, **options: Any) -> None:
        topics = ClusterTopics(random.Random(1))
        self.topic_id = topics.create("t", partitions).topic_id
        self.tips = [TopicIdPartition(self.topic_id, number) for number in range(partitions)]
        self.tip = self.tips[0]
        given = {"is_latest": False, "limits": Limits(lock_duration=LOCK), **options}
        self.cluster = ShareCluster(topics, ShareOptions(**given), nodes)
        self.now = 0.0

    def fetch(
        self,
        member: str,
        epoch: int,
        *tips: TopicIdPartition,
        node: int = 0,
        connection: str = "",
        **fields: Any,
    ) -> ShareFetchAnswer | PendingFetch:
        """One fetch; it does not wait unless it is told to."""
        topics = dict.fromkeys(tips, ()) | fields.pop("topics", {})
        request = ShareFetch(GROUP, member, epoch, **{"max_wait": 0.0, "topics": topics, **fields})
        answer = self.cluster.request(request, self.now, node=node, connection=connection or member)
        assert isinstance(answer, ShareFetchAnswer | PendingFetch)
        return answer

    def acquired(self, member: str, epoch: int, *tips: TopicIdPartition, **fields: Any) -> Any:
        """Ranges that a fetch has acquired of the first partition, or the code of its error."""
        answer = self.fetch(member, epoch, *tips, **fields)
        assert isinstance(answer, ShareFetchAnswer)
        if answer.error:
            return answer.error
        found = answer.partitions.get(self.tip)
        return [] if found is None else found.error or list(map(tuple, found.acquired))

    def ack(self, member: str, epoch: int, first: int, last: int, **fields: Any) -> Any:
        """The code of acks, or of the request."""
        kind = fields.pop("kind", AckType.ACCEPT)
        topics = {self.tip: [AckBatch(first, last, (kind,))]}
        request = ShareAcknowledge(GROUP, member, epoch, topics=topics)
        answer = self.cluster.request(request, self.now, node=fields.pop("node", 0))
        assert isinstance(answer, ShareAcknowledgeAnswer)
        return answer.error or answer.partitions[self.tip].error

    def beat(self, member: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatAnswer:
        """A heartbeat."""
        request = ShareGroupHeartbeat(GROUP, member, epoch, **fields)
        answer = self.cluster.request(request, self.now, node=self.cluster.coordinator)
        assert isinstance(answer, ShareGroupHeartbeatAnswer)
        return answer


# -- sessions -----------------------------------------------------------------------------------


def test_session_goes_on_by_its_epoch() -> None:
    """Each request has the next one, also an ack; the partitions are named once."""
    talk = Talk()
    talk.cluster.append(talk.tip, 2, 0.0)
    talk.cluster.append(talk.tip, 2, 0.0)
    assert talk.acquired("a", OPEN_EPOCH, talk.tip, max_records=1) == [(0, 1, 1)]
    assert talk.ack("a", 1, 0, 1) is Code.NONE
    assert talk.acquired("a", 1) is Code.INVALID_SHARE_SESSION_EPOCH
    assert talk.acquired("a", 2) == [(2, 3, 1)]
    assert talk.ack("b", 1, 0, 1) is Code.SHARE_SESSION_NOT_FOUND
    assert talk.ack("a", OPEN_EPOCH, 0, 1) is Code.INVALID_SHARE_SESSION_EPOCH


def test_session_that_is_opened_with_acks_is_refused() -> None:
    """Nothing can be acquired yet."""
    talk = Talk()
    acks = {talk.tip: [AckBatch(0, 0, (AckType.ACCEPT,))]}
    assert talk.acquired("a", OPEN_EPOCH, topics=acks) is Code.INVALID_REQUEST


def test_session_that_is_opened_again_keeps_what_was_acquired() -> None:
    """Only its own end releases that, or the lock's."""
    talk = Talk()
    talk.cluster.append(talk.tip, 2, 0.0)
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    assert talk.acquired("a", OPEN_EPOCH, talk.tip) == []
    assert talk.ack("a", 1, 0, 0) is Code.NONE
    talk.fetch("a", CLOSE_EPOCH)
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) == [(1, 1, 2)]


def test_session_ends_with_its_connection() -> None:
    """What it has acquired is released; but one that was opened anew over another connection stays."""
    talk = Talk()
    talk.cluster.append(talk.tip, 2, 0.0)
    talk.fetch("a", OPEN_EPOCH, talk.tip, connection="first")
    talk.fetch("a", OPEN_EPOCH, talk.tip, connection="second")
    talk.cluster.disconnect(0, "first", 0.0)
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) == []
    talk.cluster.disconnect(0, "second", 0.0)
    assert talk.acquired("b", 1) == [(0, 1, 2)]


def test_too_many_sessions_are_refused() -> None:
    """Those that are there go on."""
    talk = Talk(max_sessions=1)
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) is Code.SHARE_SESSION_LIMIT_REACHED
    assert talk.acquired("a", 1) == []


def test_fetch_waits_for_records() -> None:
    """For new ones, and for locks that end; no longer than it said."""
    talk = Talk()
    waiting = talk.fetch("a", OPEN_EPOCH, talk.tip, max_wait=5.0)
    assert isinstance(waiting, PendingFetch)
    talk.cluster.append(talk.tip, 1, 1.0)
    assert waiting.answer is not None
    assert waiting.answer.partitions[talk.tip].acquired == ((0, 0, 1),)
    late = talk.fetch("b", OPEN_EPOCH, talk.tip, max_wait=5.0)
    assert isinstance(late, PendingFetch)
    talk.cluster.advance(5.9)
    assert late.answer is not None
    assert not late.answer.partitions


def test_fetch_that_is_outrun_is_refused_and_has_acquired() -> None:
    """The member has sent another request meanwhile: what it does not hear of comes back when the lock ends."""
    talk = Talk()
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    waiting = talk.fetch("a", 1, max_wait=5.0)
    talk.fetch("a", 2, max_records=0)
    assert isinstance(waiting, PendingFetch)
    talk.cluster.append(talk.tip, 1, 1.0)
    assert waiting.answer is not None
    assert waiting.answer.error is Code.INVALID_SHARE_SESSION_EPOCH
    talk.now = 1.0 + LOCK
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) == [(0, 0, 2)]


def test_renewal_needs_a_fetch_that_wants_nothing() -> None:
    """KIP-1222: the answer would come too late."""
    talk = Talk()
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    assert talk.acquired("a", 1, has_renewals=True) is Code.INVALID_REQUEST
    nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0}
    assert talk.acquired("a", 1, has_renewals=True, **nothing) == []


# -- leaders ------------------------------------------------------------------------------------


def test_next_leader_has_what_was_stored() -> None:
    """The former one refuses the fetch and says who leads; acks there find no share partition."""
    talk = Talk(nodes=2)
    talk.cluster.append(talk.tip, 4, 0.0)
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    assert talk.ack("a", 1, 0, 0) is Code.NONE
    talk.cluster.move(talk.tip, 1, 0.0)
    assert talk.ack("a", 2, 1, 1) is Code.UNKNOWN_TOPIC_OR_PARTITION
    refused = talk.fetch("a", 3)
    assert isinstance(refused, ShareFetchAnswer)
    assert refused.partitions[talk.tip].error is Code.NOT_LEADER_OR_FOLLOWER
    assert refused.partitions[talk.tip].leader == (1, 1)
    assert talk.acquired("a", OPEN_EPOCH, talk.tip, node=1) == [(1, 3, 1)]


def test_broker_that_starts_again_knows_nobody() -> None:
    """Sessions and locks are gone."""
    talk = Talk()
    talk.cluster.append(talk.tip, 2, 0.0)
    talk.fetch("a", OPEN_EPOCH, talk.tip)
    talk.cluster.restart(0, 0.0)
    assert talk.acquired("a", 1) is Code.SHARE_SESSION_NOT_FOUND
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) == [(0, 1, 1)]


def test_unknown_partitions_are_told() -> None:
    """By id, and by number."""
    talk = Talk()
    talk.tip = TopicIdPartition(bytes(16), 0)
    assert talk.acquired("a", OPEN_EPOCH, talk.tip) is Code.UNKNOWN_TOPIC_ID
    talk.tip = TopicIdPartition(talk.topic_id, 7)
    assert talk.acquired("b", OPEN_EPOCH, talk.tip) is Code.UNKNOWN_TOPIC_OR_PARTITION


# -- the coordinator ----------------------------------------------------------------------------


def test_members_share_partitions() -> None:
    """Each partition has a member, and each member a partition, also where there are more members."""
    talk = Talk(partitions=2)
    everything = talk.beat("a", 0, topics=("t",))
    assert everything.assignment == {talk.topic_id: frozenset({0, 1})}
    for name in ("b", "c"):
        talk.beat(name, 0, topics=("t",))
    shares = [talk.beat(name, 0, topics=("t",)).assignment for name in ("a", "b", "c")]
    assert all(share and len(share[talk.topic_id]) == 1 for share in shares)
    assert set().union(*(share[talk.topic_id] for share in shares if share)) == {0, 1}


def test_epochs_fence() -> None:
    """The last one but one counts, since its answer may have been lost."""
    talk = Talk()
    first = talk.beat("a", 0, topics=("t",)).epoch
    talk.beat("b", 0, topics=("t",))
    second = talk.beat("a", first).epoch
    assert second == first + 1
    assert talk.beat("a", first).error == 0
    assert talk.beat("a", second + 1).error is Code.FENCED_MEMBER_EPOCH
    assert talk.beat("c", 1).error is Code.UNKNOWN_MEMBER_ID
    assert talk.beat("c", 0).error is Code.INVALID_REQUEST


def test_silent_member_is_out() -> None:
    """When its session is over; others have its partitions then."""
    talk = Talk(partitions=2)
    talk.beat("a", 0, topics=("t",))
    epoch = talk.beat("b", 0, topics=("t",)).epoch
    talk.now = 40.0
    talk.beat("b", epoch)
    talk.now = 46.0
    assert talk.beat("b", epoch).assignment == {talk.topic_id: frozenset({0, 1})}
    assert talk.beat("a", 1).error is Code.UNKNOWN_MEMBER_ID
    assert talk.cluster.removed == {"a"}


def test_coordinator_that_moves_has_all_but_the_timers() -> None:
    """It loads for a while; the former one sends members on."""
    talk = Talk(nodes=2)
    epoch = talk.beat("a", 0, topics=("t",)).epoch
    talk.cluster.fail_over(1.0, 1, load_time=2.0)
    talk.now = 2.0
    assert talk.beat("a", epoch).error is Code.COORDINATOR_LOAD_IN_PROGRESS
    talk.now = 3.0
    assert talk.beat("a", epoch).error is Code.NONE


def test_shares_are_even() -> None:
    """A member that joins takes a part of the others'."""
    wants = {"a": {b"t"}, "b": {b"t"}}
    before = assign_shared(wants, {b"t": 6}, {})
    after = assign_shared({**wants, "c": {b"t"}}, {b"t": 6}, before)
    assert {member: len(slots) for member, slots in after.items()} == {"a": 2, "b": 2, "c": 2}
