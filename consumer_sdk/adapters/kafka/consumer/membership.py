"""The membership in a group, in either protocol, from the join to the leave."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.consumer.granting import Holdings
from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from consumer_sdk.adapters.kafka.groups.choosing import choose_protocol
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.consumer_member import ConsumerMember
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from consumer_sdk.adapters.kafka.groups.foreign_assignor import ForeignAssignor
from consumer_sdk.adapters.kafka.groups.member import Member
from consumer_sdk.adapters.kafka.groups.runner import MemberRunner, infos_of
from consumer_sdk.adapters.kafka.groups.session_timeout import read_session_timeout
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.opening import keep_trying

__all__ = ["Membership"]

log = logging.getLogger(__name__)

ASSIGNORS: Mapping[str, type[Assignor]] = {
    each.name: each
    for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}

LEAST_PATIENCE = 3.0
"""Seconds for the answer to a heartbeat: a machine may be busy."""

SESSION_AGE = 30.0
"""Seconds after which the session of a group of the consumer protocol is asked for again."""

SESSION_PATIENCE = 5.0
"""Seconds for the answer: whoever joins or looks at topics waits for it, and can do without."""


class Membership:
    """One member, which is run from `join` on.

    Args:
        wake: called when there is an error to raise.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: GroupCoordinator,
        holdings: Holdings,
        options: KafkaOptions,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._holdings = holdings
        self._options = options
        self._wake = wake
        self._runner: MemberRunner | None = None
        self._member: Member | None = None
        self._missed: set[str] = set()
        self._session_due = math.inf
        self._has_left = False

    async def join(self, topics: Mapping[str, Topic]) -> None:
        """Joins. Another member's drain may hold that up: it then goes on behind.

        Raises:
            ConsumerSdkError: the broker or the group refuses it.
        """
        options = self._options
        is_classic = options.protocol == "classic"
        self._member = self._classic_member() if is_classic else await self._consumer_member()
        if self._has_left:  # it was closed meanwhile, and nobody would end what begins now
            return
        self._runner = MemberRunner(
            self._member,
            self._coordinator,
            self._holdings,
            group=options.group or "",
            is_classic=is_classic,
            cluster=self._cluster,
            join_patience=options.request_timeout,
            patience=max(options.session / 2, LEAST_PATIENCE) if is_classic else math.inf,
            wake=self._wake,
        )
        self._runner.start({} if options.is_chosen_by_broker else infos_of(topics))
        await self._runner.wait_joined(options.connect_timeout)

    async def decide(self) -> KafkaOptions:
        """The options with the protocol that is spoken.

        Raises:
            AdapterError: the coordinator does not say what the group is.
        """
        options, group = self._options, self._options.group or ""
        if options.protocol == "auto":
            protocol = await keep_trying(self._choose, options.connect_timeout)
            self._options = options.with_protocol(protocol)
            log.info("group %r is joined by the %s protocol", group, protocol)
        return self._options

    async def _choose(self, seconds: float) -> Literal["classic", "consumer"]:
        group = self._options.group or ""
        try:
            async with asyncio.timeout(max(seconds, 1.0)):
                return await choose_protocol(self._coordinator, group)
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, f"asking what group {group!r} is") from error

    def _classic_member(self) -> ClassicMember:
        options = self._options
        return ClassicMember(
            options.group or "",
            assignors_of(options.client_options.get("partition_assignment_strategy")),
            session_timeout=options.session,
            rebalance_timeout=options.rebalance_timeout,
            heartbeat_interval=options.heartbeat,
            instance_id=options.client_options.get("group_instance_id"),
            rack=options.client_options.get("client_rack") or None,
        )

    async def _consumer_member(self) -> ConsumerMember:
        options = self._options
        return ConsumerMember(
            options.group or "",
            topics=options.topics,
            pattern=options.pattern,
            rebalance_timeout=options.rebalance_timeout,
            session_timeout=await self._session_timeout(),
            instance_id=options.client_options.get("group_instance_id"),
            rack=options.client_options.get("client_rack") or None,
        )

    async def _session_timeout(self) -> float | None:
        """The group's, in seconds; None where it is not known."""
        loop = asyncio.get_running_loop()
        self._session_due = loop.time()
        try:
            async with asyncio.timeout(SESSION_PATIENCE):
                found = await read_session_timeout(self._coordinator, self._options.group or "")
        except (KafkaError, OSError, TimeoutError) as error:
            log.info("the session of group %r is not known: %r", self._options.group, error)
            return None
        self._session_due = loop.time() + SESSION_AGE
        return found

    async def _look_at_session(self) -> None:
        """Asks for the session again, since somebody may have changed it at the broker."""
        is_due = asyncio.get_running_loop().time() >= self._session_due
        if isinstance(self._member, ConsumerMember) and is_due:
            session = await self._session_timeout()
            if session is not None:
                self._member.session_is(session)

    async def seen(self, topics: Mapping[str, Topic]) -> None:
        """The topics at a look; where the broker chooses them, those that are held.

        Raises:
            AdapterError: the broker does not say what topics other members have.
        """
        if self._runner is None:
            return
        known, news = self._runner.topics, infos_of(topics)
        missed = known.keys() - news.keys()
        # A broker that has just started knows few topics: what one look misses alone has not gone.
        is_gone: set[str] = set() if self._options.is_chosen_by_broker else missed & self._missed
        self._missed = missed
        self._runner.see({**{n: known[n] for n in missed - is_gone}, **news})
        await self._runner.look_at_others()
        await self._look_at_session()

    def check(self) -> None:
        """Raises what has ended the membership.

        Raises:
            ConsumerSdkError: it has ended, or the group refuses it.
        """
        if self._runner is not None:
            self._runner.check()

    @property
    def held_until(self) -> float:
        """See `consumer_sdk.abc.Adapter.held_until`."""
        return math.inf if self._runner is None else self._runner.held_until

    async def drain(self) -> None:
        """Takes no partition any more, and waits until all drains have ended; heartbeats go on."""
        if self._runner is not None:
            await self._runner.drained()

    async def leave(self) -> None:
        """Leaves the group at once; what was held has been drained. Never raises."""
        self._has_left = True
        if self._runner is not None:
            await self._runner.leave()


def assignors_of(strategy: Sequence[Any] | None) -> list[Assignor]:
    """The assignors of the option: by name, or aiokafka's classes; round-robin where it is not given."""
    if strategy is None:
        return [RoundRobinAssignor()]
    return [
        ASSIGNORS[each]() if isinstance(each, str) else ForeignAssignor(each) for each in strategy
    ]
