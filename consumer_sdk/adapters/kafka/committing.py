"""Commits, fenced by the generation in which the partition was assigned.

The client's own commit sends its *current* generation, so that a late commit for a partition
that has moved on is accepted, even backwards; it retries without end; and one bad partition
hides how the others fared. Here each partition has its own answer, and nothing is retried.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import errors as kafka
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.commit import OffsetCommitRequest

from consumer_sdk.adapters.kafka.faults import translate
from consumer_sdk.adapters.kafka.grants import Grant, Grants
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.kafka.protocol import NO_TOPIC_ID, OffsetCommitById
from consumer_sdk.adapters.kafka.topics import describe_topics
from consumer_sdk.errors import AdapterError, PartitionLostError
from consumer_sdk.records import AckFlush, Checkpoint, Outcome, OutcomeKind

__all__ = ["Committer", "offset_of"]

NONE = 0
UNKNOWN_TOPIC = (3, 100)  # by name, by id
TOO_LARGE = 12
COORDINATOR_MOVED = (15, 16)
NOT_A_MEMBER = (22, 25, 82)  # illegal generation, unknown member, fenced instance
NO_METADATA = ""


def offset_of(checkpoint: Checkpoint) -> int | None:
    """What to commit: the first position that may still be unsettled.

    The resume position can lie beyond ``watermark + 1``: past a gap that compaction or a
    transaction marker left.
    """
    found = [] if checkpoint.resume is None else [int(checkpoint.resume)]
    if checkpoint.watermark is not None:
        found.append(int(checkpoint.watermark) + 1)
    return max(found, default=None)


class Committer:
    """Commits for one group, one request in the air at a time.

    Args:
        consumer: the client.
    """

    def __init__(self, consumer: Any, grants: Grants, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._grants = grants
        self._group = options.group or ""
        self._group_instance_id = options.client_options.get("group_instance_id")
        self._lock = asyncio.Lock()
        self._speaks_topic_ids = True

    @property
    def _coordinator(self) -> Any:
        return self._consumer._coordinator

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """One outcome for each flush, in order."""
        async with self._lock:
            due = [grant for flush in flushes if (grant := self._advance(flush)) is not None]
            codes = await self._send_all(due)
            await self._confirm_gone(due, codes)
        return [self._outcome(flush, codes) for flush in flushes]

    def _advance(self, flush: AckFlush) -> Grant | None:
        """The grant, if it has something to send.

        ``committed`` never goes back, and is raised before it is sent: if the reply is lost, the
        next commit still does not fall behind what may have arrived.
        """
        grant, offset = self._grants.of(flush.assignment), offset_of(flush.checkpoint)
        if grant is None or offset is None:
            return None
        grant.committed = max(grant.committed, offset)
        return grant

    async def _send_all(self, grants: Iterable[Grant]) -> dict[Any, int | Exception]:
        """Assignment → error code, or why there is none."""
        members: dict[tuple[int, str, bool], list[Grant]] = defaultdict(list)
        for grant in grants:
            has_id = self._speaks_topic_ids and bool(grant.topic_id)
            members[grant.generation, grant.member_id, has_id].append(grant)
        codes: dict[Any, int | Exception] = {}
        for (generation, member_id, has_id), theirs in members.items():
            send = self._send_by_id if has_id else self._send_by_name
            try:
                codes |= await send(generation, member_id, theirs)
            except (KafkaError, OSError, TimeoutError) as error:
                codes |= {grant.assignment: error for grant in theirs}
        return codes

    async def _send_by_id(
        self, generation: int, member_id: str, grants: Sequence[Grant]
    ) -> dict[Any, int | Exception]:
        topics = defaultdict(list)
        for grant in grants:
            entry = (grant.tp.partition, grant.committed, NO_METADATA)
            topics[grant.topic_id or NO_TOPIC_ID].append(entry)
        request = OffsetCommitById(
            self._group, generation, member_id, self._group_instance_id, topics
        )
        try:
            response = await self._coordinator._send_req(request)
        except (NotImplementedError, IncompatibleBrokerVersion):  # a broker before Kafka 4.1
            self._speaks_topic_ids = False
            return await self._send_by_name(generation, member_id, grants)
        found = {(t, p): code for t, ps, _ in response.topics for p, code, _ in ps}
        return {g.assignment: found[g.topic_id, g.tp.partition] for g in grants}

    async def _send_by_name(
        self, generation: int, member_id: str, grants: Sequence[Grant]
    ) -> dict[Any, int | Exception]:
        topics = defaultdict(list)
        for grant in grants:
            topics[grant.tp.topic].append((grant.tp.partition, grant.committed, NO_METADATA))
        forever = OffsetCommitRequest.DEFAULT_RETENTION_TIME
        request = OffsetCommitRequest(
            self._group, generation, member_id, forever, list(topics.items())
        )
        response = await self._coordinator._send_req(request)
        found = {(t, p): code for t, ps in response.topics for p, code in ps}
        return {g.assignment: found[g.tp.topic, g.tp.partition] for g in grants}

    async def _confirm_gone(
        self, grants: Iterable[Grant], codes: dict[Any, int | Exception]
    ) -> None:
        """A broker that has not heard of a young topic yet says the same of a deleted one."""
        doubtful = [g for g in grants if codes.get(g.assignment) in UNKNOWN_TOPIC]
        if not doubtful:
            return
        try:
            names = sorted({grant.tp.topic for grant in doubtful})
            topics = await describe_topics(self._consumer._client, names)
        except AdapterError as error:
            codes |= {g.assignment: error for g in doubtful}
            return
        for grant in doubtful:
            topic = topics[grant.tp.topic]
            if topic.error == NONE and topic.topic_id == grant.topic_id:
                codes[grant.assignment] = kafka.UnknownTopicOrPartitionError()

    def _outcome(self, flush: AckFlush, codes: dict[Any, int | Exception]) -> Outcome:
        where = f"committing {flush.assignment.partition} for group {self._group!r}"
        code = codes.get(flush.assignment, NONE)
        grant = self._grants.of(flush.assignment)
        if grant is None:  # it may have ended while the request was in the air
            lost = PartitionLostError(f"{where}: the partition is no longer held")
            return Outcome(OutcomeKind.FENCED, error=lost)
        if isinstance(code, Exception):
            return Outcome.retry(translate(code, where))  # sent or not, applied or not
        if code == NONE:
            return self._durable(flush, grant)
        error = translate(kafka.for_code(code)(), where)
        if code in NOT_A_MEMBER:
            self._evicted(grant)
            return Outcome(OutcomeKind.FENCED, error=error)
        if code in UNKNOWN_TOPIC:
            gone = AdapterError(f"{where}: the topic no longer exists (error {code})")
            return Outcome(OutcomeKind.GONE, error=gone)
        if code in COORDINATOR_MOVED:
            self._coordinator.coordinator_dead()
        return Outcome.retry(error)

    @staticmethod
    def _durable(flush: AckFlush, grant: Grant) -> Outcome:
        """A commit carries no ranges: what is settled above a hole stays open."""
        grant.attempt = 0
        return Outcome.durable(grant.committed - 1 if flush.checkpoint.ranges else None)

    def _evicted(self, grant: Grant) -> None:
        """The broker does not know this member; a client that still believes in it must rejoin."""
        coordinator = self._coordinator
        if (coordinator.generation, coordinator.member_id) == (grant.generation, grant.member_id):
            coordinator.reset_generation()
