"""Commits: what the broker answers, and what may never happen to the group's position."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, RequestTimedOutError

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, read_metadata
from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitById
from consumer_sdk.adapters.kafka.consumer import committing
from consumer_sdk.adapters.kafka.consumer.committing import (
    Answer,
    CommitSender,
    Committer,
    Draft,
    in_batches,
)
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.coordinator import Stamp
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import AdapterError, PartitionLostError, TransientAdapterError
from consumer_sdk.records import AckFlush, Checkpoint, Committed, Outcome, OutcomeKind
from tests.adapters.kafka.world import World, flush_of, numbered

DURABLE, RETRY, FENCED, GONE = (
    OutcomeKind.DURABLE,
    OutcomeKind.RETRY,
    OutcomeKind.FENCED,
    OutcomeKind.GONE,
)
TOPIC_ID = b"0123456789abcdef"
LIMIT = "offset.metadata.max.bytes"
LARGE = Checkpoint(4, 5, tuple((n, n) for n in range(6, 20_000, 2)))
WIDE = Checkpoint(4, 5, tuple((n, n) for n in range(6, 80_000, 2)))
HOLED = Checkpoint(watermark=4, resume=5, ranges=((6, 9), (11, 400)), attempts={5: (2, 60.0)})


class ScriptedCluster:
    """Answers what the limit of metadata is."""

    def __init__(self, coordinator: ScriptedCoordinator) -> None:
        self._coordinator = coordinator

    async def coordinator(self, _of: object) -> int:
        """Its node."""
        return 1

    async def send(self, node: int, request: Any) -> Any:
        """The answer to one question."""
        coordinator = self._coordinator
        coordinator.calls["asked"] += 1
        assert (node, request._resources) == (1, [(4, "1", [LIMIT])])
        if not coordinator.tells_limit:
            return SimpleNamespace(resources=[(31, "not allowed", 4, "1", [])])
        entry: tuple[Any, ...] = (LIMIT, str(coordinator.limit), True, 5, False, [])
        return SimpleNamespace(resources=[(0, None, 4, "1", [entry])])


class ScriptedCoordinator:
    """Answers commits from a script: a code for each partition, or an exception."""

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.error: Exception | None = None
        self.sent: list[dict[int, int]] = []
        self.texts: list[dict[int, str]] = []
        self.instances: list[str | None] = []
        self.silent: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.stamp = Stamp(7, "me")
        self.stamps: list[Stamp] = []
        self.next_stamps: list[Stamp] = []
        self.in_air = self.most_in_air = 0
        self.limit = 4096
        self.tells_limit = True
        self.most_bytes, self.too_much = 1_000_000, 28

    async def send(self, request: Any) -> Any:
        topics, fields = request.fields["topics"], request.fields
        self.in_air += 1
        self.most_in_air = max(self.most_in_air, self.in_air)
        try:
            await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
        finally:
            self.in_air -= 1
        assert fields["group"] == "g"
        self.stamps.append(Stamp(fields["generation"], fields["member"]))
        self.sent.append({p: offset for _, ps in topics for p, offset, *_ in ps})
        self.texts.append({p: text for _, ps in topics for p, *_, text in ps})
        is_too_much = sum(map(_size, self.texts[-1].values())) > self.most_bytes
        self.instances.append(fields["group_instance_id"])
        answers = [
            (
                t,
                [
                    (p, self.too_much if is_too_much else self._code(p, text))
                    for p, *_, text in ps
                    if p not in self.silent
                ],
            )
            for t, ps in topics
        ]
        return SimpleNamespace(topics=answers)

    def _code(self, partition: int, text: str) -> int:
        return self.codes.get(partition, 12 if len(text) > self.limit else 0)

    def moved(self) -> None:
        self.calls["moved"] += 1

    async def renewed(self, stamp: Stamp) -> bool:
        assert stamp == self.stamp
        if self.next_stamps:
            self.stamp = self.next_stamps.pop(0)
        return self.stamp != stamp


class Bench:
    """A committer with one grant for each partition."""

    def __init__(self, partitions: int = 1, topic_id: bytes | None = TOPIC_ID) -> None:
        self.coordinator = ScriptedCoordinator()
        self.grants = AssignmentBook[Grant]()
        cluster: Any = ScriptedCluster(self.coordinator)
        coordinator: Any = self.coordinator
        options: Any = SimpleNamespace(group="g", client_options={"group_instance_id": "static"})
        self.limit = MetadataLimit(cluster, "g")
        self.committer = Committer(cluster, self.grants, options, self.limit, coordinator)
        self.held = []
        for number in range(partitions):
            grant = Grant(TopicPartition("t", number))
            grant.topic_id = topic_id
            self.grants.offer(grant)
            self.held.append(grant)

    async def commit(self, *offsets: int) -> list[OutcomeKind]:
        """Commits for the first partitions, in order."""
        flushes = [flush_of(g.assignment, at) for g, at in zip(self.held, offsets, strict=False)]
        return [outcome.kind for outcome in await self.committer.commit(flushes)]

    async def flush(self, checkpoint: Checkpoint, number: int = 1) -> list[Outcome]:
        """Commits a checkpoint of the first partition."""
        return await self.committer.commit([AckFlush(self.held[0].assignment, number, checkpoint)])

    def read_back(self) -> list[Checkpoint]:
        """The checkpoints in the last commit."""
        return [committed.checkpoint for committed in self.committed()]

    def committed(self) -> list[Committed]:
        """What the last commit says."""
        found = []
        for partition, text in self.coordinator.texts[-1].items():
            committed, _ = read_metadata(
                text,
                self.coordinator.sent[-1][partition],
                group="g",
                partition=self.held[partition].assignment.partition,
                identity=None,
            )
            found.append(committed)
        return found


def test_options_are_what_the_committer_reads() -> None:
    """The bench's stand-in has the names of the real options."""
    assert {"group", "client_options"} <= {each.name for each in fields(KafkaOptions)}


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
async def test_each_partition_has_its_own_answer(
    topic_id: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T20: one bad partition of a commit says nothing about the others; nothing raises."""
    codes = [0, 12, 14, 15, 16, 22, 25, 27, 3, 100, 69, 82, 29]
    bench = Bench(len(codes), topic_id)
    bench.coordinator.codes = dict(enumerate(codes))
    monkeypatch.setattr(committing, "describe_topics", _describe(absent=True))
    kinds = await bench.commit(*range(1, 1 + len(codes)))
    assert kinds[:8] == [DURABLE, RETRY, RETRY, RETRY, RETRY, RETRY, FENCED, RETRY]
    assert kinds[8:] == [GONE, GONE, FENCED, FENCED, RETRY]
    assert bench.coordinator.calls["moved"] == 2


def _describe(*, absent: bool, topic_id: bytes = TOPIC_ID) -> Callable[..., Any]:
    async def describe(_client: object, names: list[str]) -> dict[str, Topic]:
        topic = Topic("t", 3 if absent else 0, topic_id, frozenset({0}), 1)
        return dict.fromkeys(names, topic)

    return describe


@pytest.mark.parametrize("code", [3, 100])
async def test_unknown_topic_that_is_still_there_is_retried(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has not heard of a topic yet does not end its partitions."""
    bench = Bench(2)
    bench.coordinator.codes = {1: code}
    monkeypatch.setattr(committing, "describe_topics", _describe(absent=False))
    fine, unsure = await bench.committer.commit([flush_of(g.assignment, 5) for g in bench.held])
    assert (fine.kind, unsure.kind) == (DURABLE, RETRY)
    assert isinstance(unsure.error, TransientAdapterError)


async def test_topic_that_was_made_again_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is there, but not what was read."""
    bench = Bench()
    bench.coordinator.codes = {0: 100}
    another = _describe(absent=False, topic_id=b"another topic id")
    monkeypatch.setattr(committing, "describe_topics", another)
    (outcome,) = await bench.flush(Checkpoint(4, 5))
    assert outcome.kind is GONE
    assert "t/0 for group 'g': the topic no longer exists (error 100)" in str(outcome.error)


async def test_unknown_topic_that_nobody_describes_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing ends before it is known; the commits of other topics count."""

    async def describe(_client: object, names: list[str]) -> dict[str, Topic]:
        raise TransientAdapterError(f"nobody describes {names}")

    bench = Bench(2)
    bench.coordinator.codes = {1: 3}
    monkeypatch.setattr(committing, "describe_topics", describe)
    fine, unsure = await bench.committer.commit([flush_of(g.assignment, 5) for g in bench.held])
    assert (fine.kind, unsure.kind) == (DURABLE, RETRY)
    assert isinstance(unsure.error, TransientAdapterError)
    assert "nobody describes ['t']" in str(unsure.error)


@pytest.mark.parametrize(
    "code, why",
    [(27, "the group is rebalancing"), (22, "another epoch"), (113, "another epoch")],
)
async def test_commit_that_comes_at_the_wrong_moment_is_retried(code: int, why: str) -> None:
    """Between join and sync, or of an epoch that is over: the grant is not over."""
    bench = Bench()
    bench.coordinator.codes = {0: code}
    (outcome,) = await bench.flush(Checkpoint(4, 5))
    assert outcome.kind is RETRY
    assert isinstance(outcome.error, TransientAdapterError)
    assert f"t/0 for group 'g': the {'group' if code == 27 else 'member'} is" in str(outcome.error)
    assert f"{why} (error {code})" in str(outcome.error)
    bench.coordinator.codes = {}
    assert await bench.commit(5) == [DURABLE]


@pytest.mark.parametrize("code", [22, 113])
async def test_commit_with_an_epoch_that_is_over_is_sent_again_with_the_new_one(code: int) -> None:
    """KIP-848: the epoch moves on while the partition stays; so do generations of cooperative groups."""
    bench = Bench(2)
    bench.coordinator.codes = {1: code}
    bench.coordinator.next_stamps = [Stamp(8, "me"), Stamp(9, "me"), Stamp(9, "me")]
    assert await bench.commit(5, 6) == [DURABLE, RETRY]
    assert bench.coordinator.sent == [{0: 5, 1: 6}, {1: 6}, {1: 6}]
    assert [stamp.epoch for stamp in bench.coordinator.stamps] == [7, 8, 9]


async def test_epoch_that_moves_on_each_time_is_left_to_the_next_flush() -> None:
    """A flush ends, whatever the group does."""
    bench = Bench()
    bench.coordinator.codes = {0: 22}
    bench.coordinator.next_stamps = [Stamp(8 + n, "me") for n in range(20)]
    assert await bench.commit(5) == [RETRY]
    assert len(bench.coordinator.sent) == 6


async def test_partition_that_ends_while_a_new_epoch_is_waited_for_is_not_sent_again() -> None:
    """T1: it may be another member's in the new epoch."""
    bench = Bench()
    bench.coordinator.codes = {0: 22}

    async def end(stamp: Stamp) -> bool:
        assert stamp.epoch == 7
        bench.grants.close([bench.held[0]])
        return True

    bench.coordinator.renewed = end  # type: ignore[method-assign]  # it ends at that moment
    assert await bench.commit(5) == [FENCED]
    assert bench.coordinator.sent == [{0: 5}]


async def test_nothing_is_committed_in_the_name_of_no_member() -> None:
    """A broker takes that for a group that is empty, whatever it rewinds."""
    bench = Bench()
    bench.coordinator.stamp = Stamp(-1, "me")
    (outcome,) = await bench.flush(Checkpoint(4, 5))
    assert outcome.kind is RETRY
    assert isinstance(outcome.error, TransientAdapterError)
    assert bench.coordinator.sent == []


async def test_first_generation_that_there_can_be_is_a_members() -> None:
    """Only what is below 0 stands for no member."""
    bench = Bench()
    bench.coordinator.stamp = Stamp(0, "me")
    assert await bench.commit(5) == [DURABLE]
    assert bench.coordinator.stamps == [Stamp(0, "me")]


async def test_durable_commit_ends_a_row_of_declined_offers() -> None:
    """The next one that is declined is offered again soon; a commit that fails ends no row."""
    bench = Bench(2)
    for grant in bench.held:
        grant.attempt = 3
    bench.coordinator.codes = {1: 27}
    assert await bench.commit(5, 6) == [DURABLE, RETRY]
    assert [grant.attempt for grant in bench.held] == [0, 3]


async def test_what_is_lost_between_two_requests_is_not_sent_with_the_next_epoch() -> None:
    """T1: the member has joined again by then, and the broker would take it."""
    bench = Bench(2)
    bench.held[1].topic_id = None  # by name, in a request of its own
    send = bench.coordinator.send

    async def lose(request: Any) -> Any:
        answer = await send(request)
        bench.grants.close([bench.held[1]])
        bench.coordinator.stamp = Stamp(1, "me again")
        return answer

    bench.coordinator.send = lose  # type: ignore[method-assign]  # a loss at the worst moment
    assert await bench.commit(5, 6) == [DURABLE, FENCED]
    assert bench.coordinator.sent == [{0: 5}]


async def test_each_draft_of_a_request_has_one_answer() -> None:
    """T1: what is lost has none of the broker, what is held none of a loss."""
    bench = Bench(3)
    drafts = [Draft.of(grant, "g", 4096) for grant in bench.held]
    bench.grants.close([bench.held[1]])
    options: Any = SimpleNamespace(group="g", client_options={})
    coordinator: Any = bench.coordinator
    answers = await CommitSender(coordinator, options).send(drafts)
    codes = {answer.draft.grant.tp.partition: answer.code for answer in answers}
    assert isinstance(codes.pop(1), PartitionLostError)
    assert codes == {0: 0, 2: 0}
    assert len(answers) == 3


async def test_commit_of_a_closed_grant_is_refused_without_asking() -> None:
    """T1: after the fence nothing is sent at all."""
    bench = Bench()
    bench.grants.close([bench.held[0]])
    (outcome,) = await bench.committer.commit([flush_of(bench.held[0].assignment, 5)])
    assert outcome.kind is FENCED
    assert isinstance(outcome.error, PartitionLostError)
    assert bench.coordinator.sent == []


async def test_grant_that_ends_while_its_commit_is_in_the_air_is_fenced() -> None:
    """The answer may be "done"; whoever holds the partition now decides."""
    bench = Bench()
    commit = asyncio.ensure_future(bench.commit(5))
    await asyncio.sleep(0)
    bench.grants.close([bench.held[0]])
    assert await commit == [FENCED]


async def test_lost_reply_is_a_retry_and_no_later_commit_falls_behind_it() -> None:
    """T19, T20: it may have been applied; the position never moves backwards."""
    bench = Bench()
    bench.coordinator.error = RequestTimedOutError()
    (outcome,) = await bench.committer.commit([flush_of(bench.held[0].assignment, 9)])
    assert outcome.kind is RETRY
    assert isinstance(outcome.error, TransientAdapterError)
    bench.coordinator.error = None
    assert await bench.commit(4) == [DURABLE]
    assert bench.coordinator.sent == [{0: 9}]


async def test_cancelled_commit_is_not_overtaken_by_an_older_one() -> None:
    """T19: a cancellation leaves it open whether the request has arrived."""
    bench = Bench()
    commit = asyncio.ensure_future(bench.commit(9))
    await asyncio.sleep(0)
    commit.cancel()
    await asyncio.wait({commit})
    assert await bench.commit(4) == [DURABLE]
    assert bench.coordinator.sent == [{0: 9}]


async def test_commits_at_the_same_time_go_one_after_the_other() -> None:
    """T19: two requests in the air could be applied in either order."""
    bench = Bench()
    await asyncio.gather(*(bench.commit(at) for at in (5, 3, 9)))
    assert bench.coordinator.most_in_air == 1
    assert bench.coordinator.sent == [{0: 5}, {0: 5}, {0: 9}]


async def test_broker_without_topic_ids_gets_commits_by_name() -> None:
    """Before Kafka 4.1 there is no such version of the request; it is tried once."""
    bench = Bench(2)
    real = bench.coordinator.send
    refused: list[Any] = []

    async def refuse_ids(request: Any) -> Any:
        if isinstance(request, OffsetCommitById):
            refused.append(request)
            raise IncompatibleBrokerVersion
        return await real(request)

    bench.coordinator.send = refuse_ids  # type: ignore[method-assign]  # an old broker
    assert await bench.commit(3, 4) == [DURABLE, DURABLE]
    assert await bench.commit(5, 6) == [DURABLE, DURABLE]
    assert len(refused) == 1


async def test_ranges_above_a_hole_are_durable_with_their_position() -> None:
    """T5: position, ranges and attempts of one flush, in one commit."""
    bench = Bench()
    assert await bench.flush(HOLED) == [Outcome.durable()]
    assert bench.coordinator.sent == [{0: 5}]
    assert bench.read_back() == [HOLED]


async def test_older_flush_never_mixes_its_ranges_with_a_newer_position() -> None:
    """T5, T19: what is sent again is the newer flush, all of it."""
    bench = Bench()
    newer = Checkpoint(watermark=9, resume=10, ranges=((12, 13),))
    await bench.flush(newer, number=3)
    await bench.flush(HOLED, number=2)
    assert bench.coordinator.sent == [{0: 10}, {0: 10}]
    assert bench.read_back() == [newer]


async def test_older_flush_of_the_same_position_does_not_take_back_what_was_settled() -> None:
    """T19: a hole stays where it is while more is settled above it."""
    bench = Bench()
    newer = replace(HOLED, ranges=((6, 9), (11, 500)), attempts={5: (3, 61.0)})
    await bench.flush(newer, number=3)
    await bench.flush(HOLED, number=2)
    assert bench.read_back() == [newer]


async def test_newest_flush_says_whether_a_store_has_it() -> None:
    """An older one that is sent late changes nothing of what the commit says."""
    bench = Bench()
    assignment = bench.held[0].assignment
    for number, resume, is_copy in ((1, 5, False), (3, 9, True), (2, 7, False), (4, 9, False)):
        flush = AckFlush(assignment, number, Checkpoint(resume - 1, resume), is_copy=is_copy)
        await bench.committer.commit([flush])
        assert bench.committed()[0].is_copy == (number in {3, 2})


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
async def test_partition_that_the_answer_leaves_out_is_retried(topic_id: bytes | None) -> None:
    """T20: nobody knows whether it was written; its siblings' answers count."""
    bench = Bench(3, topic_id)
    bench.coordinator.silent = {1}
    flushes = [flush_of(grant.assignment, 5) for grant in bench.held]
    outcomes = await bench.committer.commit(flushes)
    assert [outcome.kind for outcome in outcomes] == [DURABLE, RETRY, DURABLE]
    assert isinstance(outcomes[1].error, TransientAdapterError)
    assert "t/1" in str(outcomes[1].error)


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
async def test_static_member_says_which_it_is(topic_id: bytes | None) -> None:
    """The broker refuses the commits of one that was replaced, also where they go by name."""
    bench = Bench(1, topic_id)
    await bench.commit(5)
    assert bench.coordinator.instances == ["static"]


async def test_loop_runs_between_the_partitions_of_a_large_commit() -> None:
    """A hundred partitions with thousands of holes take longer than a heartbeat may wait."""
    bench = Bench(100)
    wide = Checkpoint(4, 5, tuple((n, n) for n in range(6, 6_006, 2)))
    commit = asyncio.ensure_future(
        bench.committer.commit([AckFlush(grant.assignment, 1, wide) for grant in bench.held])
    )
    turns = 0
    while not bench.coordinator.sent:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(bench.held)
    assert {outcome.kind for outcome in await commit} == {DURABLE}


@pytest.mark.parametrize("is_copy, warnings", [(False, 1), (True, 0)])
async def test_application_that_finds_no_room_is_said_once(
    caplog: pytest.LogCaptureFixture, *, is_copy: bool, warnings: int
) -> None:
    """A restart would not know that the application had started anew, unless a store does."""
    bench = Bench(2)
    named = Checkpoint(4, 5, application="billing, second edition")
    await bench.flush(named)
    assert not bench.committed()[0].is_partial
    assert caplog.messages == []
    bench.coordinator.limit = 48
    await bench.limit.learn()
    caplog.clear()
    for number in (2, 3):
        flushes = [AckFlush(g.assignment, number, named, is_copy=is_copy) for g in bench.held]
        await bench.committer.commit(flushes)
        assert [each.is_partial for each in bench.committed()] == [True, True]
    assert len(caplog.messages) == warnings
    assert caplog.text.count("application_id 'billing, second edition'") == warnings


@pytest.mark.parametrize("tells_limit", [True, False])
@pytest.mark.parametrize("limit", [0, HEAD_SIZE - 1, HEAD_SIZE, 80, 120, 4000])
async def test_metadata_that_is_too_large_shrinks_within_the_commit(
    limit: int, *, tells_limit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """T8: once, also where the broker does not tell its limit; then it is known, and said."""
    bench = Bench()
    bench.coordinator.limit, bench.coordinator.tells_limit = limit, tells_limit
    (outcome,) = await bench.flush(WIDE)
    assert (outcome.kind, outcome.covered is not None) == (DURABLE, True)
    rounds, warnings = len(bench.coordinator.sent), len(caplog.records)
    assert rounds <= 14
    assert LIMIT in caplog.text
    kept = bench.read_back()[0]
    assert WIDE.covers(kept)
    assert outcome.covered == (kept.ranges[-1][1] if kept.ranges else 4)
    assert await bench.flush(WIDE, number=2) == [outcome]
    assert (len(bench.coordinator.sent), len(caplog.records)) == (rounds + 1, warnings)
    if tells_limit:
        assert (rounds, warnings, bench.limit.size) == (2, 1, limit)


async def test_answer_to_what_others_sent_shrinks_the_next_metadata() -> None:
    """T8: a transaction sends its own commit; what the broker finds too large fits the next time."""
    bench = Bench()
    grant = bench.held[0]
    draft = replace(Draft.of(grant, "g", 4096), metadata="x" * 1_000)
    flush = flush_of(grant.assignment, 5)
    bench.coordinator.tells_limit = False
    (outcome,) = await bench.committer.outcomes([flush], {grant.assignment: Answer(draft, 12)})
    assert outcome.kind is RETRY
    assert bench.limit.size < 1_000


async def test_attempts_that_do_not_fit_are_counted_in_the_outcome() -> None:
    """The commit is durable all the same, and covers all ranges that there are."""
    bench = Bench()
    failing = Checkpoint(4, 5, attempts={n: (2, 1.7e9 + n / 7) for n in range(5, 8_005)})
    (outcome,) = await bench.flush(failing)
    kept = bench.read_back()[0].attempts
    assert outcome == Outcome.durable(forgotten=8_000 - len(kept))
    assert (
        kept.items()
        <= {p: (f, round(d * 1000) / 1000) for p, (f, d) in failing.attempts.items()}.items()
    )


async def test_partition_whose_metadata_is_too_large_does_not_hold_up_its_siblings() -> None:
    """T8: the code is the partition's own; the others are not sent again."""
    bench = Bench(3)
    bench.coordinator.limit = 100
    flushes = [
        AckFlush(grant.assignment, 1, checkpoint)
        for grant, checkpoint in zip(bench.held, [HOLED, WIDE, Checkpoint(4, 5)], strict=True)
    ]
    outcomes = await bench.committer.commit(flushes)
    assert [outcome.kind for outcome in outcomes] == [DURABLE] * 3
    assert [outcome.covered is None for outcome in outcomes] == [True, False, True]
    assert [list(sent) for sent in bench.coordinator.sent] == [[0, 1, 2], [1]]


async def test_commit_that_no_metadata_makes_small_enough_is_retried_later() -> None:
    """T20: the broker's refusal of a position alone is no success, and no endless loop."""
    bench = Bench()
    bench.coordinator.codes = {0: 12}
    (outcome,) = await bench.flush(HOLED)
    assert outcome.kind is RETRY
    assert bench.coordinator.texts[-1] == {0: ""}


async def test_commits_with_much_metadata_are_split_below_what_a_broker_stores() -> None:
    """All of a request is one batch in the broker's own topic, which has its limit, too."""
    bench = Bench(100)
    flushes = [AckFlush(grant.assignment, 1, LARGE) for grant in bench.held]
    outcomes = await bench.committer.commit(flushes)
    assert {outcome.kind for outcome in outcomes} == {DURABLE}
    assert sorted(p for sent in bench.coordinator.sent for p in sent) == list(range(100))
    sizes = [sum(map(_size, texts.values())) for texts in bench.coordinator.texts]
    assert len(sizes) < 5
    assert max(sizes) < 500_000


@pytest.mark.parametrize("code", [-1, 10, 18, 28])
async def test_commits_that_the_broker_cannot_store_at_once_are_split_further(code: int) -> None:
    """Its own topic may take less; a flush is tried again, with fewer partitions in a request."""
    bench = Bench(40)
    flushes = [AckFlush(grant.assignment, 1, LARGE) for grant in bench.held]
    bench.coordinator.most_bytes, bench.coordinator.too_much = 60_000, code
    tries = 0
    while {o.kind for o in await bench.committer.commit(flushes)} != {DURABLE}:
        tries += 1
        assert tries < 6
    assert sum(_size(text) for text in bench.coordinator.texts[-1].values()) <= 60_000


def _size(text: str) -> int:
    return len(text.encode())


@pytest.mark.parametrize(
    "most_bytes, sizes",
    [(2400, [4]), (2399, [3, 1]), (1200, [2, 2]), (1199, [1, 1, 1, 1]), (1, [1, 1, 1, 1])],
)
def test_request_takes_partitions_up_to_the_limit(most_bytes: int, sizes: list[int]) -> None:
    """A partition has three bytes for a character of its metadata, and 300 besides; one alone always goes."""
    bench = Bench(4)
    drafts = [replace(Draft.of(grant, "g", 4096), metadata="x" * 100) for grant in bench.held]
    batches = list(in_batches(drafts, most_bytes))
    assert [len(batch) for batch in batches] == sizes
    assert [draft for batch in batches for draft in batch] == drafts


@pytest.mark.parametrize(
    "refused, sizes", [({}, [2, 1]), ({2: -1}, [2, 1]), ({0: 27}, [2, 1]), ({0: -1}, [1, 1, 1])]
)
async def test_requests_become_smaller_if_several_partitions_were_too_much(
    refused: dict[int, int], sizes: list[int]
) -> None:
    """Of what was stored, of another error, and of one that was alone the next requests know nothing."""
    bench = Bench(3)
    bench.coordinator.limit, bench.coordinator.codes = 60_000, refused
    drafts = [replace(Draft.of(grant, "g", 4096), metadata="x" * 60_000) for grant in bench.held]
    options: Any = SimpleNamespace(group="g", client_options={})
    coordinator: Any = bench.coordinator
    sender = CommitSender(coordinator, options)
    for expected in ([2, 1], sizes, sizes):
        bench.coordinator.sent.clear()
        await sender.send(drafts)
        assert [len(sent) for sent in bench.coordinator.sent] == expected


async def test_flush_without_a_position_sends_nothing() -> None:
    """There is nothing to say before the first record."""
    bench = Bench()
    assert await bench.flush(Checkpoint()) == [Outcome.durable()]
    assert bench.coordinator.sent == []


@pytest.mark.kafka
async def test_deleted_topic_is_gone_and_its_sibling_is_committed(world: World) -> None:
    """The client's own commit retries a deleted topic for ever, and hides the others."""
    kept, deleted = await world.kafka.create_stream(), await world.kafka.create_stream()
    async with world.member(kept, topics=(kept, deleted), metadata_max_age_ms=60_000) as member:
        held = await member.holding(2)
        await world.kafka.delete(deleted)
        await world.kafka.until_absent(deleted)
        outcomes = await member.adapter.commit([flush_of(a, 3) for a in held])
        kinds = {a.partition.stream: o.kind for a, o in zip(held, outcomes, strict=True)}
        # A rebalance may come first: then the grants are over, and nothing is written either.
        assert kinds[deleted] in {GONE, FENCED}
        if kinds[kept] is DURABLE:
            assert await world.offsets(kept) == {0: 3}


@pytest.mark.kafka
async def test_position_of_a_deleted_topic_never_lands_on_its_successor(world: World) -> None:
    """Offset 77 of the deleted topic was committed onto the new one of the same name."""
    topic = await world.kafka.create_stream()
    async with world.member(topic, metadata_max_age_ms=60_000) as member:
        (held,) = await member.holding(1)
        await world.kafka.recreate(topic)
        await world.kafka.append(topic, numbered(0, 3))
        (outcome,) = await member.adapter.commit([flush_of(held, 77)])
        assert outcome.kind in {GONE, FENCED}
        assert isinstance(outcome.error, AdapterError)
        assert await world.offsets(topic) == {}


@pytest.mark.kafka
async def test_commit_at_the_same_generation_reads_back_over_the_wire(world: World) -> None:
    """What the broker stores is what was asked, and lag tools see it."""
    topic = await world.kafka.create_stream(2)
    async with world.member(topic) as member:
        first, second = await member.holding(2)
        outcomes = await member.adapter.commit([flush_of(first, 4), flush_of(second, 0)])
        assert [outcome.kind for outcome in outcomes] == [DURABLE, DURABLE]
        assert await world.offsets(topic) == {0: 4, 1: 0}
        found = await member.adapter.committed([first, second])
        assert found[first] == Committed(Checkpoint(watermark=3, resume=4), is_copy=False)
        assert found[second] == Committed(Checkpoint(watermark=None, resume=0), is_copy=False)
