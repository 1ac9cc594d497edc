"""Reads and moves a group's position without being a member, as consumers with ``assign`` do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import HeartbeatRequest

from consumer_sdk.adapters.kafka.client.faults import names_of, translate
from consumer_sdk.adapters.kafka.client.lookups import LATEST, Coordinator, GroupOffset
from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitByName, OffsetEntry
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import Outcome, OutcomeKind

__all__ = ["GroupPosition"]

NO_GENERATION = -1
NO_MEMBER = ""
NO_GROUP = 69
NONE = -1
"""What the broker says where nothing was committed."""

MEMBERS = frozenset({22, 25, 82, 113})
"""The group has members (illegal generation, unknown member, fenced instance, stale epoch)."""
ADVICE = "the group has members, who alone may commit: stop them, or use a group of its own"
REFUSED = MEMBERS | {29, 30}
"""Or the principal has no right to the topic or the group."""
GONE = frozenset({3, 100})
"""There is no such topic or partition."""
FORBIDDEN = (GroupAuthorizationFailedError, TopicAuthorizationFailedError)


class GroupPosition:
    """Reads and moves what the group has committed; without a group there is nothing."""

    def __init__(self, connection: Connection, group: str | None) -> None:
        self._connection = connection
        self._cluster = connection.cluster
        self._group = group
        self._coordinator = Coordinator(group or "")

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Where the group stands; None where it has committed nothing.

        Raises:
            AdapterError: its coordinator did not answer, or refused.
        """
        found = await self.commits(tps)
        return {tp: None if commit is None else commit.offset for tp, commit in found.items()}

    async def commits(
        self, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """The same with the metadata.

        Raises:
            AdapterError: its coordinator did not answer, or refused.
        """
        group = self._group
        if group is None:
            return dict.fromkeys(tps)
        return await self._connection.persist(
            f"reading what group {group!r} has committed of {names_of(tps)}",
            lambda: self._cluster.committed(group, tps),
        )

    async def commit(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Outcome]:
        """Moves it forward, to nothing that lies beyond the partition's end. Never raises."""
        return await self._guarded(wanted, self._commit)

    @staticmethod
    async def _guarded(
        wanted: Mapping[TopicPartition, int],
        commit: Callable[[Mapping[TopicPartition, int]], Awaitable[dict[TopicPartition, Outcome]]],
    ) -> dict[TopicPartition, Outcome]:
        if not wanted:
            return {}
        try:
            return await commit(wanted)
        except Exception as error:  # noqa: BLE001 - the outcome carries it
            is_refused = isinstance(error.__cause__, FORBIDDEN)
            kind = OutcomeKind.FENCED if is_refused else OutcomeKind.RETRY
            return dict.fromkeys(wanted, Outcome(kind, error=error))

    async def _commit(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Outcome]:
        committed = await self.committed(wanted.keys())
        ahead = {tp: at for tp, at in wanted.items() if at > _or_none(committed[tp])}
        return dict.fromkeys(wanted, Outcome.durable()) | await self._set(ahead)

    async def reset(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Outcome]:
        """Sets it, also back, without metadata; to nothing beyond the partition's end. Never raises."""
        return await self._guarded(wanted, self._set)

    async def _set(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Outcome]:
        outcomes = await self._beyond(wanted)
        stored = {tp: at for tp, at in wanted.items() if tp not in outcomes}
        return outcomes | (await self._send_commit(stored) if stored else {})

    async def members(self) -> list[str]:
        """Who is in the group now: the client's id and host of each.

        Raises:
            AdapterError: its coordinator did not answer, or refused.
        """
        request = DescribeGroupsRequest([self._group or ""])

        async def ask() -> list[str]:
            response = await self._send(request)
            found: list[str] = []
            for code, _group, _state, _type, _protocol, members, *_ in response.groups:
                self._check(0 if code == NO_GROUP else code)
                found += [f"{client}@{host.lstrip('/')}" for _id, client, host, *_ in members]
            return sorted(found)

        return await self._connection.persist(f"asking who is in group {self._group!r}", ask)

    async def check_access(self) -> None:
        """A heartbeat of no member: the broker sees to the right to join before it looks who asks.

        Raises:
            AdapterError: there is no such right, or its coordinator did not answer.
        """
        request = HeartbeatRequest(self._group or "", NO_GENERATION, NO_MEMBER)

        async def ask() -> None:
            code = (await self._send(request)).error_code
            self._check(0 if code in {*MEMBERS, NO_GROUP} else code)

        await self._connection.persist(f"asking to join group {self._group!r}", ask)

    async def _beyond(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Outcome]:
        """Positions that the partition does not have: it was deleted, or made again.

        By name a commit of a deleted topic's position lands on the one made in its place, which
        its consumers would then find out of range.
        """
        ends = await self._connection.look_up(wanted.keys(), LATEST)
        return {
            tp: Outcome(OutcomeKind.GONE, error=_beyond_error(tp, at, ends[tp]))
            for tp, at in wanted.items()
            if at > _or_none(ends[tp])
        }

    async def _send_commit(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Outcome]:
        topics: dict[str, list[OffsetEntry]] = defaultdict(list)
        for tp, at in wanted.items():
            topics[tp.topic].append(OffsetEntry(tp.partition, at))
        group = self._group or ""
        request = OffsetCommitByName(group, NO_GENERATION, NO_MEMBER, None, topics)

        async def ask() -> dict[TopicPartition, int]:
            response = await self._send(request)
            codes = {TopicPartition(t, p): code for t, ps in response.topics for p, code in ps}
            for code in codes.values():
                self._cluster.check_coordinator(self._coordinator, code)
            return codes

        where = f"committing {names_of(wanted)} of group {group!r}"
        codes = await self._connection.persist(where, ask)
        return {tp: _outcome(codes.get(tp, NONE), where) for tp in wanted}

    async def _send(self, request: Any) -> Any:
        """Asks the coordinator."""
        return await self._cluster.send(self._coordinator, request)

    def _check(self, code: int) -> None:
        self._cluster.check_coordinator(self._coordinator, code)
        if code:
            raise for_code(code)(f"group {self._group!r}")


def _or_none(offset: int | None) -> int:
    return NONE if offset is None else offset


def _beyond_error(tp: TopicPartition, at: int, end: int | None) -> PositionOutOfRangeError:
    what = "it is gone" if end is None else f"it ends at {end}"
    return PositionOutOfRangeError(
        f"position {at} of {tp.topic}[{tp.partition}] is not committed: {what}; was the topic "
        f"deleted and made again?"
    )


def _outcome(code: int, where: str) -> Outcome:
    if code == 0:
        return Outcome.durable()
    error = translate(for_code(code)(ADVICE if code in MEMBERS else f"error {code}"), where)
    if code in REFUSED:
        return Outcome(OutcomeKind.FENCED, error=error)
    return Outcome(OutcomeKind.GONE if code in GONE else OutcomeKind.RETRY, error=error)
