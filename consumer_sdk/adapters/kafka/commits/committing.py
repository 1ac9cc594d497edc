"""Commits, fenced by the generation in which the partition was assigned.

The client's own commit sends its *current* generation, so that a late commit for a partition
that has moved on is accepted, even backwards; it retries without end; and one bad partition
hides how the others fared. Here each partition has its own answer, and nothing is retried but
what the broker finds too large: with less beside the position, at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.commits.commit_sender import Answer, Draft, Sender
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, MOST, offset_of
from consumer_sdk.adapters.kafka.consumer.grants import Grant, Grants
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import AdapterError, PartitionLostError
from consumer_sdk.records import AckFlush, Assignment, Outcome, OutcomeKind

__all__ = ["Committer"]

log = logging.getLogger(__name__)

Answers = dict[Assignment, Answer]

NONE = 0
UNKNOWN_TOPIC = (3, 100)  # by name, by id
METADATA_TOO_LARGE = 12
COORDINATOR_MOVED = (15, 16)
NOT_A_MEMBER = (22, 25, 82)  # illegal generation, unknown member, fenced instance


class Committer:
    """Commits for one group, one request in the air at a time.

    Args:
        consumer: the client.
        limit: how much metadata a commit may carry.
    """

    def __init__(
        self, consumer: Any, grants: Grants, options: KafkaOptions, limit: MetadataLimit
    ) -> None:
        self._consumer = consumer
        self._grants = grants
        self._group = options.group or ""
        self._limit = limit
        self._sender = Sender(consumer, options)
        self._lock = asyncio.Lock()
        self._has_warned = False

    @property
    def _coordinator(self) -> Any:
        return self._consumer._coordinator

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """One outcome for each flush, in order."""
        async with self._lock:
            answers: Answers = {}
            due = [grant for flush in flushes if (grant := self._advance(flush)) is not None]
            while due:
                answers |= _by_assignment(await self._sender.send(await self._drafts(due)))
                due = await self._too_large(answers)
            await self._confirm_gone(answers)
        return [self._outcome(flush, answers.get(flush.assignment)) for flush in flushes]

    def _advance(self, flush: AckFlush) -> Grant | None:
        """The grant, if it has something to send.

        ``committed`` never goes back, and is raised before it is sent: if the reply is lost, the
        next commit still does not fall behind what may have arrived.
        """
        grant, offset = self._grants.of(flush.assignment), offset_of(flush.checkpoint)
        if grant is None or offset is None:
            return None
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
        """Those whose metadata has to shrink, once the limit did; no metadata cannot."""
        refused = [
            a.draft for a in answers.values() if a.code == METADATA_TOO_LARGE and a.draft.metadata
        ]
        if refused:
            await self._limit.shrink(min(len(draft.metadata) for draft in refused))
        return [draft.grant for draft in refused]

    async def _confirm_gone(self, answers: Answers) -> None:
        """A broker that has not heard of a young topic yet says the same of a deleted one."""
        doubtful = [answer for answer in answers.values() if answer.code in UNKNOWN_TOPIC]
        if not doubtful:
            return
        try:
            names = sorted({answer.draft.grant.tp.topic for answer in doubtful})
            topics = await describe_topics(self._consumer._client, names)
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

    def _evicted(self, grant: Grant) -> None:
        """The broker does not know this member; a client that still believes in it must rejoin."""
        coordinator = self._coordinator
        if (coordinator.generation, coordinator.member_id) == (grant.generation, grant.member_id):
            coordinator.reset_generation()


def _by_assignment(answers: Iterable[Answer]) -> Answers:
    return {answer.draft.grant.assignment: answer for answer in answers}
