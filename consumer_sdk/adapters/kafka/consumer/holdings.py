"""Applies the group's assignments and revocations to the grants and their owner."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.consumer.granting import Failures, Granting, Revoking
from consumer_sdk.adapters.kafka.consumer.grants import Grant

__all__ = ["Holdings", "Taken"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """What is to be drained.

    Attributes:
        ends_round: the granting may be busy with one of them.
    """

    grants: Sequence[Grant]
    ends_round: bool


class Holdings:
    """The partitions that the group assigns. They come and go one by one; those that stay are not touched.

    Args:
        unread: topics that the group may assign, and that are held without being granted.
    """

    def __init__(
        self,
        grants: AssignmentBook[Grant],
        granting: Granting,
        revoking: Revoking,
        failures: Failures,
        *,
        unread: AbstractSet[str] = frozenset(),
    ) -> None:
        self._grants = grants
        self._granting = granting
        self._revoking = revoking
        self._failures = failures
        self._unread = unread

    @property
    def tps(self) -> frozenset[TopicPartition]:
        """The partitions that were assigned and not given up."""
        return self._granting.tps

    def assign(self, tps: Collection[tuple[str, int]]) -> None:
        """Takes partitions that the group assigns. Waits for nothing."""
        added = self._to_read(frozenset(TopicPartition(*tp) for tp in tps) - self.tps)
        if added and not self._grants.is_closing:
            self._granting.offer(added)

    def _to_read(self, tps: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        # The broker evaluates a pattern for its own topics too. Each commit is a record of one of them: who read
        # it would commit without end.
        unread = frozenset(tp for tp in tps if tp.topic in self._unread)
        if unread:
            log.info(
                "%d partitions of Kafka's own topics match the pattern: they are held, and not read",
                len(unread),
            )
        return tps - unread

    def take(self, tps: Collection[tuple[str, int]]) -> Taken:
        """Stops fetching partitions that are to go; their commits are still valid."""
        grants = self._give_up(tps)
        ends_round = self._granting.is_renewing(grants)
        self._grants.drain(grants)
        for grant in grants:
            grant.cursor.close()
        return Taken(grants, ends_round)

    async def drain(self, taken: Taken) -> None:
        """Lets the owner drain and flush, within the budget. Never raises."""
        try:
            await self._revoking.revoke_some(taken.grants, ends_round=taken.ends_round)
        except Exception as error:  # noqa: BLE001 - the membership goes on, and fetch raises it
            self._failures.keep(error)

    def lose(self, tps: Collection[tuple[str, int]], reason: str) -> None:
        """Drops partitions that may be another member's already."""
        grants = self._give_up(tps)
        if grants:
            log.warning(
                "%d partitions are lost, and what is not committed is delivered again: %s",
                *(len(grants), reason),
            )
        self._revoking.lose(grants)

    async def end(self) -> None:
        """Drains all partitions, and grants none any more."""
        self._grants.end_offers()
        self._give_up(self.tps)
        await self._revoking.revoke_all()

    def _give_up(self, tps: Collection[tuple[str, int]]) -> list[Grant]:
        return self._granting.give_up(TopicPartition(*tp) for tp in tps)
