"""Commit requests: by topic id where the broker can, and no larger than it stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from consumer_sdk.adapters.kafka.client.protocol import (
    NO_TOPIC_ID,
    OffsetCommitById,
    OffsetCommitByName,
)
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, write_metadata
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import TransientAdapterError

__all__ = ["Answer", "Draft", "Sender"]

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
    def loses_application(self) -> bool:
        """The limit leaves no room for the application's id, and no store has it."""
        has_one = self.grant.checkpoint.application is not None and not self.grant.is_copy
        return has_one and len(self.metadata) <= HEAD_SIZE


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a draft.

    Attributes:
        code: Kafka's error code, 0 for none; or why there is no answer.
    """

    draft: Draft
    code: int | Exception


class Sender:
    """Sends drafts to the coordinator; retries nothing, but sends less after it was too much."""

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._group = options.group or ""
        self._group_instance_id = options.client_options.get("group_instance_id")
        self._speaks_topic_ids = True
        self._most_bytes = MOST_BYTES

    async def send(self, drafts: Iterable[Draft]) -> list[Answer]:
        """An answer to each."""
        members: dict[tuple[int, str, bool], list[Draft]] = defaultdict(list)
        for draft in drafts:
            grant = draft.grant
            has_id = self._speaks_topic_ids and bool(grant.topic_id)
            members[grant.generation, grant.member_id, has_id].append(draft)
        answers: list[Answer] = []
        for (generation, member_id, has_id), theirs in members.items():
            for some in _batches(theirs, self._most_bytes):
                codes = await self._send_some(generation, member_id, some, has_id=has_id)
                answers += map(Answer, some, codes)
                if len(some) > 1 and not BATCH_TOO_LARGE.isdisjoint(codes):
                    self._most_bytes = max(self._most_bytes // 2, FEWEST_BYTES)
        return answers

    async def _send_some(
        self, generation: int, member_id: str, drafts: Sequence[Draft], *, has_id: bool
    ) -> Sequence[int | Exception]:
        send = self._send_by_id if has_id else self._send_by_name
        try:
            return await send(generation, member_id, drafts)
        except (KafkaError, OSError, TimeoutError) as error:
            return [error] * len(drafts)

    async def _send_by_id(
        self, generation: int, member_id: str, drafts: Sequence[Draft]
    ) -> list[int | Exception]:
        topics = defaultdict(list)
        for draft in drafts:
            topics[draft.grant.topic_id or NO_TOPIC_ID].append(_entry(draft))
        request = OffsetCommitById(
            self._group, generation, member_id, self._group_instance_id, topics
        )
        try:
            response = await self._consumer._coordinator._send_req(request)
        except (NotImplementedError, IncompatibleBrokerVersion):  # a broker before Kafka 4.1
            self._speaks_topic_ids = False
            return await self._send_by_name(generation, member_id, drafts)
        found = {(t, p): code for t, ps, _ in response.topics for p, code, _ in ps}
        return _codes(found, [(d.grant.topic_id, d.grant.tp.partition) for d in drafts])

    async def _send_by_name(
        self, generation: int, member_id: str, drafts: Sequence[Draft]
    ) -> list[int | Exception]:
        topics = defaultdict(list)
        for draft in drafts:
            topics[draft.grant.tp.topic].append(_entry(draft))
        request = OffsetCommitByName(
            self._group, generation, member_id, self._group_instance_id, topics
        )
        response = await self._consumer._coordinator._send_req(request)
        found = {(t, p): code for t, ps in response.topics for p, code in ps}
        return _codes(found, [d.grant.tp for d in drafts])


def _codes(
    found: Mapping[tuple[Any, int], int], places: Iterable[tuple[Any, int]]
) -> list[int | Exception]:
    """The code of each; what an answer leaves out may have been written, or not."""
    absent = TransientAdapterError("the broker's answer leaves the partition out")
    return [found.get(place, absent) for place in places]


def _entry(draft: Draft) -> tuple[int, int, str]:
    return draft.grant.tp.partition, draft.offset, draft.metadata


def _batches(drafts: Sequence[Draft], most_bytes: int) -> Iterator[list[Draft]]:
    """As few as stay below ``most_bytes`` each."""
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
