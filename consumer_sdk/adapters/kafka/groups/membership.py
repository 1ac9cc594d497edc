"""What the adapter needs of its membership in a group, whoever keeps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import OffsetAndMetadata, TopicPartition

__all__ = ["GroupMembership", "Stamp"]


class Stamp(NamedTuple):
    """What a commit says of who sends it."""

    epoch: int
    member_id: str


class GroupMembership(ABC):
    """One member of one group, as commits and look-ups see it."""

    @property
    @abstractmethod
    def coordinator_id(self) -> int | None:
        """The broker that keeps the group, if that is known."""

    @property
    @abstractmethod
    def stamp(self) -> Stamp:
        """What a commit carries now, of whatever is held: a partition that stays is the member's in each new epoch."""

    @abstractmethod
    async def send(self, request: Any) -> Any:
        """The coordinator's answer.

        Raises:
            KafkaError, OSError, TimeoutError: there is none; the coordinator is looked up again.
        """

    @abstractmethod
    async def committed(
        self, tps: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The group's commits of these partitions; those without one are left out.

        Raises:
            KafkaError, OSError, TimeoutError: the coordinator does not say.
        """

    @abstractmethod
    def coordinator_moved(self) -> None:
        """An answer said that the coordinator is another one."""

    @abstractmethod
    def is_gone(self, code: int) -> bool:
        """Whether a commit that was refused by this code came from no member; if not, it may be tried again."""

    @abstractmethod
    async def renewed(self, stamp: Stamp) -> bool:
        """Waits a moment for another stamp than this one, which was refused as an old one.

        Returns:
            whether there is one.
        """
