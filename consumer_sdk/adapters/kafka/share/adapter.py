"""The Kafka adapter as a member of a share group: a queue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from consumer_sdk.abc import AssignmentOwner, LeaseSource
from consumer_sdk.adapters.kafka.adapter import KafkaAdapter
from consumer_sdk.adapters.kafka.share.consumer import ShareConsumer
from consumer_sdk.errors import ConsumerClosedError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Checkpoint,
    Committed,
    Kind,
    Outcome,
    Partition,
    Position,
    Run,
    Start,
)

__all__ = ["ShareGroupAdapter"]

UNRENEWED = 0.8
"""The share of a lock's time that a record may wait where locks cannot be renewed."""


class ShareGroupAdapter(KafkaAdapter):
    """What ``KafkaAdapter(…, share_group="name")`` makes."""

    def __init__(self, *topics: Any, **options: Any) -> None:
        super().__init__(*topics, **options)
        self.group = self._options.share_group
        self.capabilities = Capabilities(
            kind=Kind.QUEUE,
            wants_settled=True,
            keeps_key_order=False,
            counts_deliveries=True,
            lag_unit=None,
            knows_ends=False,
        )
        self._member: ShareConsumer | None = None

    def __repr__(self) -> str:
        options = self._options
        topics = ", ".join(map(repr, options.topics))
        return (
            f"KafkaAdapter({topics}, "
            f"bootstrap_servers={','.join(options.servers)!r}, share_group={self.group!r})"
        )

    @property
    def _opened_member(self) -> ShareConsumer:
        if self._member is None or self._is_closed:
            state = "closed; make a new one" if self._is_closed else "not open"
            raise ConsumerClosedError(f"the Kafka adapter is {state}")
        return self._member

    async def open(
        self,
        owner: AssignmentOwner,
        leases: LeaseSource | None = None,  # noqa: ARG002 - the broker shares records out
    ) -> None:
        if self._member is not None or self._is_closed:
            raise ConsumerClosedError("a Kafka adapter can be opened once; make a new one")
        member = self._member = ShareConsumer(self._options, owner)
        try:
            await member.open()
            self._learn(member)
            await member.join()
        except BaseException:
            await self.aclose()
            raise

    def _learn(self, member: ShareConsumer) -> None:
        """Reads the group's limits before the first partition is granted."""
        hold = self._options.longest_hold
        if not member.renews:
            hold = min(hold, member.limits.lock_time * UNRENEWED)
        self.capabilities = replace(
            self.capabilities,
            max_deliveries=member.limits.dead_letter_at,
            longest_hold=hold,
            lag_unit="records" if member.tells_lag else None,
        )

    async def run(self) -> None:
        if not self._is_closed:
            await self._opened_member.run()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        return await self._opened_member.fetch(max_records, max_bytes, max_wait)

    # -- one partition ----------------------------------------------------------------------

    def pause(self, assignment: Assignment) -> None:
        if self._member is not None:
            self._member.pause(assignment)

    def resume(self, assignment: Assignment) -> None:
        if self._member is not None:
            self._member.resume(assignment)

    def drop(self, assignment: Assignment) -> None:
        if self._member is not None:
            self._member.drop(assignment)

    def held_until(self) -> float:
        return math.inf

    def identity(self, assignment: Assignment) -> str | None:  # noqa: ARG002 - nothing is stored with it
        return None

    # -- acknowledging ----------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Acknowledges each settled record, also while the adapter closes: the last flush comes then."""
        if self._member is None:
            raise ConsumerClosedError("the Kafka adapter is not open")
        return await self._member.commit(flushes)

    # -- positions --------------------------------------------------------------------------

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """Returns no position: the broker keeps the state of each record."""
        return dict.fromkeys(assignments, Committed(Checkpoint()))

    async def positions(
        self,
        assignments: Sequence[Assignment],
        at: Start,  # noqa: ARG002 - a queue has none
    ) -> Mapping[Assignment, Position | None]:
        return dict.fromkeys(assignments)

    async def partitions(self, stream: str) -> Sequence[Partition]:
        return [Partition(stream, str(n)) for n in await self._opened_member.partitions(stream)]

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """Counts the records that the whole group has not settled; all members see the same number."""
        lags = await self._opened_member.lags([a.partition for a in assignments])
        return {a: lags[a.partition] for a in assignments}

    # -- the end ----------------------------------------------------------------------------

    async def aclose(self) -> None:
        self._is_closed = True
        if self._member is not None:
            await self._member.aclose()
