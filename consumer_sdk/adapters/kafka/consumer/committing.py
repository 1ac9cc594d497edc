"""Commits, fenced by the member's generation or epoch, and by the grants.

The broker accepts any commit of a member in its *current* epoch, also for a partition that has moved, and even
backwards. So the position of a partition that is no longer held is never sent: the grants are checked last, when the
request is made.

aiokafka's own commit retries without end, and one bad partition hides the results of the others. Here each partition
has its own result. Only two kinds of commits are retried: one that the broker finds too large, with less metadata; and
one with an epoch that the member has left meanwhile, with the new epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiokafka import errors as kafka
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.protocol import NO_TOPIC_ID
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, MOST, offset_of, write_metadata
from consumer_sdk.adapters.kafka.commits.structs import (
    OffsetCommitById,
    OffsetCommitByName,
    OffsetEntry,
    codes_in,
)
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator, Stamp
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import AdapterError, PartitionLostError, TransientAdapterError
from consumer_sdk.records import AckFlush, Assignment, Outcome, OutcomeKind

__all__ = ["Answer", "Answers", "Committer", "Draft", "in_batches"]

log = logging.getLogger(__name__)

NONE = 0
UNKNOWN_TOPIC = (3, 100)  # by name, by id
METADATA_TOO_LARGE = 12
COORDINATOR_MOVED = (15, 16)
NOT_A_MEMBER = (25, 69, 82)
"""Unknown member, no such group, fenced instance."""
OLD_STAMP = (22, 113)
"""Illegal generation, stale member epoch: the member may have a newer one by now, and says itself when what it holds is lost."""
REBALANCING = 27
ROUNDS = 5
"""How often what was refused for its epoch is sent again at once, with the epoch that is the member's by then."""

MOST_BYTES = 500_000
"""The broker stores a request as one batch, and refuses one above its ``message.max.bytes``: 1 MiB
by default, which 86 partitions with full metadata exceed."""
FEWEST_BYTES = 20_000
BATCH_TOO_LARGE = {-1, 10, 18, 28}
"""What brokers say then: since Kafka 4 it is -1, unknown server error."""
UNIT_BYTES = 3
ENTRY_BYTES = 300
"""A partition's share of the batch beside its metadata, with the names of group and topic."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be committed for a grant.

    Attributes:
        metadata: see `write_metadata`.
        covered: the last position that the commit covers, if that is not all.
        forgotten: attempts that did not fit.
    """

    grant: Grant
    offset: int
    metadata: str
    covered: int | None
    forgotten: int

    @classmethod
    def of(cls, grant: Grant, group: str, limit: int) -> Draft:
        """Offset and metadata of the grant's last flush."""
        text, covered, forgotten = write_metadata(
            grant.checkpoint,
            grant.committed,
            group=group,
            partition=grant.assignment.partition,
            limit=limit,
            is_copy=grant.is_copy,
        )
        return cls(grant, grant.committed, text, covered, forgotten)

    @property
    def entry(self) -> OffsetEntry:
        """The draft as an entry of the commit request."""
        epoch = self.grant.cursor.last_epoch
        return OffsetEntry(self.grant.tp.partition, self.offset, epoch, self.metadata)

    @property
    def loses_application(self) -> bool:
        """Whether the application's text does not fit into the metadata, and no store has it."""
        has_one = self.grant.checkpoint.application is not None and not self.grant.is_copy
        return has_one and len(self.metadata) <= HEAD_SIZE


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a draft.

    Attributes:
        code: Kafka's error code, 0 for none; or why there is no answer.
        stamp: what it was sent with.
    """

    draft: Draft
    code: int | Exception
    stamp: Stamp | None = None


Answers = dict[Assignment, Answer]


class Committer:
    """Commits for one group, one request in the air at a time.

    Args:
        limit: how much metadata a commit may carry.
        coordinator: of the member whose commits they are.
    """

    def __init__(
        self,
        cluster: Cluster,
        grants: AssignmentBook[Grant],
        options: KafkaOptions,
        limit: MetadataLimit,
        coordinator: GroupCoordinator,
    ) -> None:
        self._cluster = cluster
        self._grants = grants
        self._group = options.group or ""
        self._limit = limit
        self._coordinator = coordinator
        self._sender = CommitSender(coordinator, options)
        self._lock = asyncio.Lock()
        self._has_warned = False

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Commits flushes; returns the outcome of each, in order."""
        async with self._lock:
            answers: Answers = {}
            due = [grant for flush in flushes if (grant := self._advance(flush)) is not None]
            rounds = 0
            while due:
                sent = _by_assignment(await self._sender.send(await self._drafts(due)))
                answers |= sent
                due = await self._too_large(answers)
                if rounds < ROUNDS:
                    due += await self._stamped_anew(sent)
                rounds += 1
            return await self.outcomes(flushes, answers)

    async def outcomes(self, flushes: Sequence[AckFlush], answers: Answers) -> list[Outcome]:
        """What the answers mean for each flush, in order; of what was too large the next one has less."""
        await self._too_large(answers)
        await self._confirm_gone(answers)
        return [self._outcome(flush, answers.get(flush.assignment)) for flush in flushes]

    def _advance(self, flush: AckFlush) -> Grant | None:
        """Gives a flush to its grant; returns the grant if there is something to send."""
        grant, offset = self._grants.of(flush.assignment), offset_of(flush.checkpoint)
        if grant is None or offset is None:
            return None
        # What is to be committed never goes back, and is raised before it is sent:
        #   1. a flush of offset 100 is sent, the broker stores it, and the answer is lost;
        #   2. a flush of offset 90, which was put back, is tried again;
        #   3. so 100 is sent once more, and nobody who takes over reads 90 to 99 again.
        if (offset, flush.number) >= (grant.committed, grant.number):
            grant.committed, grant.number = offset, flush.number
            grant.checkpoint, grant.is_copy = flush.checkpoint, flush.is_copy
        return grant

    async def _drafts(self, grants: Iterable[Grant]) -> list[Draft]:
        drafts = []
        for grant in grants:
            drafts.append(Draft.of(grant, self._group, self._limit.size))
            if drafts[-1].loses_application:
                self._warn_of_lost_application(drafts[-1])
            if len(drafts[-1].metadata) > HEAD_SIZE:  # some milliseconds, where holes are many
                await asyncio.sleep(0)
        return drafts

    def _warn_of_lost_application(self, draft: Draft) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s: the commits of group %r have no room for application_id %.40r, which is forgotten "
            "at a restart: shorten it, set offset.metadata.max.bytes=%d at the broker, or give the "
            "consumer a store",
            *(draft.grant.assignment.partition, self._group),
            *(draft.grant.checkpoint.application, MOST),
        )

    async def _too_large(self, answers: Answers) -> list[Grant]:
        """Returns the grants whose metadata the broker finds too large, after it has lowered the limit."""
        refused = [
            a.draft for a in answers.values() if a.code == METADATA_TOO_LARGE and a.draft.metadata
        ]
        if refused:
            await self._limit.shrink(min(len(draft.metadata) for draft in refused))
        return [draft.grant for draft in refused]

    async def _stamped_anew(self, answers: Answers) -> list[Grant]:
        """Returns the grants that were refused for an epoch that the member has left meanwhile.

        1. A heartbeat is answered: the member is in a new epoch, and keeps the partition; 2. a commit with
        the old epoch comes before that answer has arrived. It is refused, and nothing is lost.
        """
        renewed = {
            stamp: await self._coordinator.renewed(stamp)
            for stamp in {a.stamp for a in answers.values() if a.code in OLD_STAMP}
            if stamp is not None
        }
        old = [a for a in answers.values() if a.code in OLD_STAMP and a.stamp and renewed[a.stamp]]
        return [answer.draft.grant for answer in old]

    async def _confirm_gone(self, answers: Answers) -> None:
        """A broker that has not heard of a young topic yet says the same of a deleted one."""
        doubtful = [answer for answer in answers.values() if answer.code in UNKNOWN_TOPIC]
        if not doubtful:
            return
        try:
            names = sorted({answer.draft.grant.tp.topic for answer in doubtful})
            topics = await describe_topics(self._cluster, names)
        except AdapterError as error:
            answers |= _by_assignment(replace(answer, code=error) for answer in doubtful)
            return
        for answer in doubtful:
            grant = answer.draft.grant
            topic = topics[grant.tp.topic]
            if topic.error == NONE and topic.topic_id == grant.topic_id:
                unsure = kafka.UnknownTopicOrPartitionError()
                answers[grant.assignment] = replace(answer, code=unsure)

    def _outcome(self, flush: AckFlush, answer: Answer | None) -> Outcome:
        where = f"committing {flush.assignment.partition} for group {self._group!r}"
        grant = self._grants.of(flush.assignment)
        if grant is None:  # it may have ended while the request was in the air
            lost = PartitionLostError(f"{where}: the partition is no longer held")
            return Outcome(OutcomeKind.FENCED, error=lost)
        code = NONE if answer is None else answer.code  # None: there was no position to send
        if isinstance(code, Exception):
            return Outcome.retry(translate(code, where))  # sent or not, applied or not
        if code == NONE:
            grant.attempt = 0
            draft = None if answer is None else answer.draft
            return Outcome.durable(draft and draft.covered, draft.forgotten if draft else 0)
        return self._failed(code, where)

    def _failed(self, code: int, where: str) -> Outcome:
        """What the broker's code means for one grant."""
        error = translate(kafka.for_code(code)(), where)
        if code in NOT_A_MEMBER:
            return Outcome(OutcomeKind.FENCED, error=error)
        if code in UNKNOWN_TOPIC:
            gone = AdapterError(f"{where}: the topic no longer exists (error {code})")
            return Outcome(OutcomeKind.GONE, error=gone)
        if code in COORDINATOR_MOVED:
            self._coordinator.moved()
        if code == REBALANCING:
            error = TransientAdapterError(f"{where}: the group is rebalancing (error {code})")
        if code in OLD_STAMP:
            error = TransientAdapterError(f"{where}: the member is in another epoch (error {code})")
        return Outcome.retry(error)


def _by_assignment(answers: Iterable[Answer]) -> Answers:
    return {answer.draft.grant.assignment: answer for answer in answers}


# -- requests: by topic id where the broker can, and no larger than it stores -------------------


LOST = PartitionLostError("the partition is no longer held")
NOT_JOINED = TransientAdapterError("the member is joining the group anew")


class CommitSender:
    """Sends drafts to the coordinator; retries nothing, but sends less after it was too much."""

    def __init__(self, coordinator: GroupCoordinator, options: KafkaOptions) -> None:
        self._coordinator = coordinator
        self._group = options.group or ""
        self._group_instance_id = options.client_options.get("group_instance_id")
        self._speaks_topic_ids = True
        self._most_bytes = MOST_BYTES

    async def send(self, drafts: Iterable[Draft]) -> list[Answer]:
        """Sends drafts; returns the answer to each."""
        kinds: dict[bool, list[Draft]] = defaultdict(list)
        for draft in drafts:
            kinds[self._speaks_topic_ids and bool(draft.grant.topic_id)].append(draft)
        answers: list[Answer] = []
        for has_id, theirs in kinds.items():
            for some in in_batches(theirs, self._most_bytes):
                found = await self._send_some(some, has_id=has_id)
                answers += found
                codes = {answer.code for answer in found}
                if len(some) > 1 and not BATCH_TOO_LARGE.isdisjoint(codes):
                    self._most_bytes = max(self._most_bytes // 2, FEWEST_BYTES)
        return answers

    async def _send_some(self, drafts: Sequence[Draft], *, has_id: bool) -> list[Answer]:
        # 1. There are several requests to send, and the first one waits for its answer; 2. the member is
        # lost, joins again, and has another id and epoch; 3. the second request would carry these, and
        # be taken. What was lost meanwhile is not sent, and what is sent carries the stamp of this moment.
        held = [draft for draft in drafts if not draft.grant.is_closed]
        lost = [Answer(draft, LOST) for draft in drafts if draft.grant.is_closed]
        if not held:
            return lost
        stamp = self._coordinator.stamp
        if (
            stamp.epoch < 0
        ):  # from no member a broker takes anything, once the group is empty: also what goes back
            return lost + [Answer(draft, NOT_JOINED) for draft in held]
        send = self._send_by_id if has_id else self._send_by_name
        codes: Sequence[int | Exception]
        try:
            codes = await send(stamp, held)
        except (KafkaError, OSError, TimeoutError) as error:
            codes = [error] * len(held)
        return lost + [Answer(draft, code, stamp) for draft, code in zip(held, codes, strict=True)]

    async def _send_by_id(self, stamp: Stamp, drafts: Sequence[Draft]) -> list[int | Exception]:
        topics = defaultdict(list)
        for draft in drafts:
            topics[draft.grant.topic_id or NO_TOPIC_ID].append(draft.entry)
        request = OffsetCommitById(self._group, *stamp, self._group_instance_id, topics)
        try:
            response = await self._coordinator.send(request)
        except IncompatibleBrokerVersion:  # a broker before Kafka 4.1
            self._speaks_topic_ids = False
            return await self._send_by_name(stamp, drafts)
        return _codes(
            codes_in(response.topics), [(d.grant.topic_id, d.grant.tp.partition) for d in drafts]
        )

    async def _send_by_name(self, stamp: Stamp, drafts: Sequence[Draft]) -> list[int | Exception]:
        topics = defaultdict(list)
        for draft in drafts:
            topics[draft.grant.tp.topic].append(draft.entry)
        request = OffsetCommitByName(self._group, *stamp, self._group_instance_id, topics)
        response = await self._coordinator.send(request)
        return _codes(codes_in(response.topics), [d.grant.tp for d in drafts])


def _codes(
    found: Mapping[tuple[Any, int], int], places: Iterable[tuple[Any, int]]
) -> list[int | Exception]:
    """Returns the code of each draft; a partition that the answer leaves out may have been written, or not."""
    absent = TransientAdapterError("the broker's answer leaves the partition out")
    return [found.get(place, absent) for place in places]


def in_batches(drafts: Sequence[Draft], most_bytes: int = MOST_BYTES) -> Iterator[list[Draft]]:
    """Splits drafts into as few requests as stay below ``most_bytes`` each."""
    batch: list[Draft] = []
    size = 0
    for draft in drafts:
        added = UNIT_BYTES * len(draft.metadata) + ENTRY_BYTES
        if batch and size + added > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(draft)
        size += added
    yield batch
