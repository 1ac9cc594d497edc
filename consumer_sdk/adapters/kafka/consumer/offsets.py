"""Where a partition begins and ends, and where its group stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.groups.membership import GroupMembership
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint

__all__ = ["Offsets"]


class Offsets:
    """Asks the broker; decides nothing.

    Args:
        consumer: the client.
        timeout: seconds for each question.
        membership: in the group whose commits are read.
    """

    def __init__(self, consumer: Any, timeout: float, membership: GroupMembership) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._membership = membership

    async def at(
        self, tps: Iterable[TopicPartition], start: Start
    ) -> dict[TopicPartition, int | None]:
        """What a start stands for now; None where no record is that new."""
        wanted = list(tps)
        if not wanted:
            return {}
        try:
            async with asyncio.timeout(self._timeout):
                return await self._at(wanted, start)
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, f"looking up positions of {_names(wanted)}") from error

    async def _at(
        self, tps: Sequence[TopicPartition], start: Start
    ) -> dict[TopicPartition, int | None]:
        if isinstance(start, AtPosition):
            return dict.fromkeys(tps, int(start.position))
        if isinstance(start, AtTime):
            times = dict.fromkeys(tps, _milliseconds(start.time))
            found = await self._consumer.offsets_for_times(times)
            return {tp: None if at is None else at.offset for tp, at in found.items()}
        if start is StartPoint.EARLIEST:
            return dict(await self._consumer.beginning_offsets(tps))
        if start is StartPoint.LATEST:
            return dict(await self._consumer.end_offsets(tps))
        return dict.fromkeys(tps)

    async def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        """The group's committed offsets with their metadata, from its coordinator."""
        wanted = list(tps)
        try:
            async with asyncio.timeout(self._timeout):
                found = dict(await self._membership.committed(wanted))
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, f"reading the group's positions of {_names(wanted)}") from error
        return found

    async def partitions(self, topic: str) -> Sequence[int]:
        """The numbers of a topic's partitions; none if it is gone."""
        topics = await describe_topics(self._consumer._client, [topic])
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
        if start is StartPoint.BROKER:
            committed = await self.committed(tps) if has_group else {}
            found: Mapping[TopicPartition, int | None]
            found = {tp: each.offset for tp, each in committed.items()}
            otherwise = StartPoint.EARLIEST  # no position yet: nothing may be skipped
        else:
            found = await self.at(tps, start)
            otherwise = StartPoint.LATEST  # no record is that new
        absent = [tp for tp in tps if found.get(tp) is None]
        rest = ends or await self.at(absent, otherwise)
        offsets = {tp: rest.get(tp) if found.get(tp) is None else found[tp] for tp in tps}
        if None in offsets.values():
            raise TransientAdapterError(f"the broker did not say where {_names(tps)} stands")
        return {grant: int(offsets[grant.tp] or 0) for grant in grants}


def _milliseconds(time: float) -> int:
    """Rounded up, but for what a float cannot hold of a whole millisecond."""
    return max(-(-round(time * 1_000_000) // 1000), 0)


def _names(tps: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{tp.topic}[{tp.partition}]" for tp in tps))
