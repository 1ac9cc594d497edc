"""Looks up offsets: where a partition begins and ends, and what its group has committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.asking import look_up, time_of
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import names_of, translate
from consumer_sdk.adapters.kafka.client.lookups import GroupOffset
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import read_metadata
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import Assignment, AtPosition, AtTime, Committed, Start, StartPoint

__all__ = ["CommittedOffsets", "Offsets"]

log = logging.getLogger(__name__)


class Offsets:
    """Asks the broker; decides nothing.

    Args:
        level: 1: what lies behind an open transaction does not count.
        timeout: seconds for each question.
        coordinator: of the group whose commits are read.
    """

    def __init__(
        self, cluster: Cluster, coordinator: GroupCoordinator, *, level: int, timeout: float
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._level = level
        self._timeout = timeout

    async def at(
        self, tps: Iterable[TopicPartition], start: Start
    ) -> dict[TopicPartition, int | None]:
        """What a start stands for now; None where no record is that new."""
        wanted = list(tps)
        if isinstance(start, AtPosition):
            return dict.fromkeys(wanted, int(start.position))
        if start in (StartPoint.BROKER, StartPoint.ENDED):
            return dict.fromkeys(wanted)
        seconds, time = self._timeout, time_of(start)
        return await look_up(self._cluster, wanted, time, level=self._level, seconds=seconds)

    async def committed(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """The group's committed offsets with their metadata, from its coordinator."""
        wanted = list(tps)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._coordinator.committed(wanted)
        except (KafkaError, OSError, TimeoutError) as error:
            where = f"reading the group's positions of {names_of(wanted)}"
            raise translate(error, where) from error

    async def partitions(self, topic: str) -> Sequence[int]:
        """The numbers of a topic's partitions; none if it is gone."""
        topics = await describe_topics(self._cluster, [topic])
        return sorted(topics[topic].partitions)

    async def resolve(self, grants: Sequence[Grant], *, has_group: bool) -> Mapping[Grant, int]:
        """The offset at which each of these grants starts; those that have ended are left out.

        Raises:
            TransientAdapterError: the broker does not answer.
        """
        by_start: dict[Start, list[Grant]] = {}
        for grant in grants:
            if grant.start is not None and grant.start is not StartPoint.ENDED:
                by_start.setdefault(grant.start, []).append(grant)
        resolved: dict[Grant, int] = {}
        for start, theirs in by_start.items():
            resolved |= await self._resolve_start(start, theirs, has_group=has_group)
        return resolved

    async def _resolve_start(
        self, start: Start, grants: Sequence[Grant], *, has_group: bool
    ) -> dict[Grant, int]:
        tps = [grant.tp for grant in grants]
        # What comes between two questions may be as new as a time asks for: first the ends.
        ends = await self.at(tps, StartPoint.LATEST) if isinstance(start, AtTime) else {}
        found: Mapping[TopicPartition, int | None]
        if start is StartPoint.BROKER:
            found = await self._stand(grants) if has_group else {}
            otherwise = StartPoint.EARLIEST  # no position yet: nothing may be skipped
        else:
            found = await self.at(tps, start)
            otherwise = StartPoint.LATEST  # no record is that new
        absent = [tp for tp in tps if found.get(tp) is None]
        rest = ends or await self.at(absent, otherwise)
        offsets = {tp: rest.get(tp) if found.get(tp) is None else found[tp] for tp in tps}
        if None in offsets.values():
            raise TransientAdapterError(f"the broker did not say where {names_of(tps)} stands")
        return {grant: int(offsets[grant.tp] or 0) for grant in grants}

    async def _stand(self, grants: Sequence[Grant]) -> dict[TopicPartition, int]:
        """Where the group stands; the grants remember it."""
        committed = await self.committed([grant.tp for grant in grants])
        for grant in grants:
            grant.stands = committed.get(grant.tp)
        return {tp: each.offset for tp, each in committed.items() if each is not None}


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
