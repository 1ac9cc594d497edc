"""Where the group stands, read back from its commits, whoever wrote them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.group_offsets import GroupOffset
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import read_metadata
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.offsets import Offsets
from consumer_sdk.records import Assignment, Committed

__all__ = ["CommittedOffsets"]

log = logging.getLogger(__name__)


class CommittedOffsets:
    """Reads the commits of one group."""

    def __init__(
        self, offsets: Offsets, grants: AssignmentBook[Grant], limit: MetadataLimit, group: str
    ) -> None:
        self._offsets = offsets
        self._grants = grants
        self._limit = limit
        self._group = group

    async def read(
        self, identities: Mapping[Assignment, str | None]
    ) -> dict[Assignment, Committed | None]:
        """The commit of each assignment; None where there is none.

        Args:
            identities: the topic's id now, if known.

        Raises:
            AdapterError: the broker does not answer, or refused.
        """
        tps = {a: TopicPartition(a.partition.stream, int(a.partition.id)) for a in identities}
        found = await self._offsets.committed(tps.values())
        read: dict[Assignment, Committed | None] = dict.fromkeys(identities)
        for assignment, identity in identities.items():
            commit = found.get(tps[assignment])
            if commit is not None:
                if (grant := self._grants.of(assignment)) is not None:
                    grant.stands = commit
                read[assignment] = await self._checkpoint_of(assignment, commit, identity)
        return read

    async def _checkpoint_of(
        self, assignment: Assignment, commit: GroupOffset, identity: str | None
    ) -> Committed:
        partition, text = assignment.partition, commit.metadata
        committed, flaw = read_metadata(
            text, commit.offset, group=self._group, partition=partition, identity=identity
        )
        if not text and not await self._limit.has_room_for_head():
            # Ours have no mark either. A reset goes unnoticed where a store has another position.
            return replace(committed, is_foreign=False, is_copy=True)
        if flaw:
            log.warning(
                "%s: of the commit of group %r, the offset %d alone counts, not its metadata: %s",
                *(partition, self._group, commit.offset, flaw),
            )
        return committed
