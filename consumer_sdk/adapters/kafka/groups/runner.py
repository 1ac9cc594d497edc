"""Runs a `Member`: sends its requests, passes it the answers, and carries out its events.

One task talks to the coordinator, and nothing holds it up: revoked partitions are drained in another task, so
heartbeats go on. Events are applied in their order, without an await in between, before anything else is sent.

Races:

- *Lost while it drains, and given back.* (1) A partition is revoked, and its owner drains; (2) the membership is lost,
  and the owner is told; (3) the member joins anew, and gets the partition again. It is offered when the first
  drain has ended, and that drain's end releases nothing of the new membership.
- *Closed while a request is under way.* The connection is closed, and the member learns that no answer came. It leaves
  under the id and epoch that it has by then.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.connections import loop_time
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.protocol import NO_TOPIC_ID
from consumer_sdk.adapters.kafka.client.topics import Topic, describe_topic_ids, describe_topics
from consumer_sdk.adapters.kafka.groups.choosing import ClassicMembers, describe_members
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Event,
    Lost,
    Member,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import JoinGroup, Request, SyncGroup
from consumer_sdk.adapters.kafka.groups.refusals import refusal, unlike, unsupported
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire
from consumer_sdk.errors import AdapterError, ConsumerSdkError, TransientAdapterError
from consumer_sdk.log_limits import REPEATS

__all__ = ["MemberRunner", "PartitionOwner", "Speech", "infos_of"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 1.0
ANSWER = 10.0
"""Seconds for the answer to a heartbeat, at most."""
LEAST_REST = 0.001
"""Seconds between two questions to the member: one that is due, and says nothing, does not keep the loop busy."""
LEAST_TICK = 0.01
"""Seconds between two looks at the member while a request is under way."""
LEAVE = 2.0
"""Seconds that leaving may take."""


class PartitionOwner(Protocol):
    """Whoever has the partitions."""

    def assign(self, tps: frozenset[TopicPartition]) -> None:
        """Takes partitions that the group assigns."""

    def take(self, tps: frozenset[TopicPartition]) -> Any:
        """Stops fetching these partitions; returns what `drain` is to be given."""

    async def drain(self, taken: Any) -> None:
        """Finishes the records in handlers, and commits them. Never raises."""

    def lose(self, tps: frozenset[TopicPartition], reason: str) -> None:
        """Drops partitions that are lost."""


class Speech(NamedTuple):
    """What a kind of group says on the wire, and why it refuses.

    Attributes:
        refusal: of a code, the broker's own words, and what was asked for.
    """

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]
    refusal: Callable[[int, str, str], ConsumerSdkError]
    unsupported: Callable[[Exception, str], ConsumerSdkError]


class Drain:
    """What is being drained; what of it is lost meanwhile is not released."""

    def __init__(self, tps: frozenset[TopicPartition]) -> None:
        self.tps = tps
        self.to_release = tps
        self.late: frozenset[TopicPartition] = frozenset()


class MemberRunner:
    """One membership, from the join to the leave.

    Args:
        group: for messages.
        is_classic: the protocol that the member speaks.
        cluster: looks up the names of topics.
        join_patience: seconds for the answer to a join.
        patience: seconds for the answer to a heartbeat. In what is left of the session it is asked again.
        wake: called when there is an error to raise.
        speech: by default that of consumer groups.
    """

    def __init__(
        self,
        member: Member,
        coordinator: GroupCoordinator,
        owner: PartitionOwner,
        *,
        group: str,
        is_classic: bool,
        cluster: Cluster,
        join_patience: float,
        patience: float = ANSWER,
        wake: Callable[[], None],
        speech: Speech | None = None,
    ) -> None:
        self._speech = speech or _speech(is_classic=is_classic)
        self._member = member
        self._coordinator = coordinator
        self._owner = owner
        self._group = group
        self._where = f"group {group!r}"
        self._cluster = cluster
        self._join_patience = join_patience
        self._patience = min(patience, ANSWER)
        self._wake_fetch = wake
        self._work = asyncio.Event()
        self._topics: dict[str, TopicInfo] | None = None
        self._others: frozenset[str] = frozenset()
        self._drains: dict[asyncio.Task[None], Drain] = {}
        self._task: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._refusal: ConsumerSdkError | None = None
        self._unlike: tuple[str, ...] = ()
        """The member's assignors, if the group has refused these: the error will say what it has."""
        self._backoff = 0.0
        self._is_closing = False
        coordinator.member = member

    # -- from outside -------------------------------------------------------------------------

    def start(self, topics: Mapping[str, TopicInfo]) -> None:
        """Begins to join.

        Args:
            topics: those that the member subscribes to.
        """
        self.see(topics)
        self._task = asyncio.create_task(self._run(), name="kafka: membership")

    async def wait_joined(self, timeout: float) -> None:
        """Waits until the group has taken the member. Another member's drain may hold that up.

        Raises:
            ConsumerSdkError: it refuses it.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._joined.wait()
        except TimeoutError:
            log.info("%s: joining takes longer than %.0f s, and goes on", self._where, timeout)
        self.check()

    def see(self, topics: Mapping[str, TopicInfo]) -> None:
        """Gives the member the cluster's metadata of now."""
        if topics != self._topics:
            self._topics = dict(topics)
            self._member.metadata_changed(dict(topics), loop_time())
            self._work.set()

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics that the member was told of last."""
        return self._topics or {}

    @property
    def held_until(self) -> float:
        """See `consumer_sdk.abc.Adapter.held_until`."""
        return self._member.held_until if self._member.held else math.inf

    def check(self) -> None:
        """Sees that the membership lives.

        Raises:
            ConsumerSdkError: it has ended, or the group refuses it.
        """
        if self._refusal is not None:
            raise self._refusal
        task = self._task
        if task is not None and task.done() and not self._is_closing:
            reason = None if task.cancelled() else task.exception()
            error = AdapterError(
                f"the membership of {self._where} has ended ({reason!r}); close the consumer"
            )
            error.__cause__ = reason
            raise error

    async def drained(self) -> None:
        """Waits until all drains have ended; no partition is taken any more."""
        self._is_closing = True
        while self._drains:
            await asyncio.wait(set(self._drains))

    async def leave(self) -> None:
        """Leaves the group at once; what was held has been drained. Never raises."""
        self._is_closing = True
        for task in (self._task, self._learning):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._joined.set()
        if self._task is None or self._refusal is not None:
            return
        try:
            async with asyncio.timeout(LEAVE):
                await self._leave()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("leaving %s: %r", self._where, error)

    async def _leave(self) -> None:
        self._member.leave(loop_time())
        while not self._member.has_left:
            request = self._member.poll(loop_time())
            if request is None:
                await self._rest()
            else:
                await self._ask(request)

    # -- the conversation ---------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._refusal is None and not self._member.has_left:
                request = self._member.poll(loop_time())
                self._apply()
                if self._unlike:
                    await self._explain()
                elif request is None:
                    await self._rest()
                else:
                    await self._ask(request)
                    self._apply()
                    await asyncio.sleep(self._backoff)
        finally:
            self._joined.set()
            self._wake_fetch()

    async def _rest(self) -> None:
        """Waits until there is something to send."""
        left = max(self._member.wake_at() - loop_time(), LEAST_REST)
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()

    async def _ask(self, request: Request) -> None:
        takes_long = isinstance(request, JoinGroup | SyncGroup)
        timeout = self._join_patience if takes_long else self._patience
        asking = asyncio.create_task(self._coordinator.ask(self._speech.to_wire(request), timeout))
        try:
            await self._wait_for(asking)
            answer = self._speech.from_wire(asking.result())
        except IncompatibleBrokerVersion as error:
            self._member.failed(request, loop_time())
            self._refuse(self._speech.unsupported(error, f"joining {self._where}"))
        except (KafkaError, OSError, TimeoutError) as error:
            self._member.failed(request, loop_time())
            self._failed(error)
        except asyncio.CancelledError:
            asking.cancel()
            self._member.failed(request, loop_time())
            await asyncio.wait({asking})
            raise
        else:
            self._backoff = 0.0
            self._member.answered(request, answer, loop_time())
            self._coordinator.tell_news()

    async def _wait_for(self, asking: asyncio.Task[Any]) -> None:
        """Waits for an answer, and polls the member meanwhile, so that it notices the end of its session."""
        while not asking.done():
            left = max(self._member.wake_at() - loop_time(), LEAST_TICK)
            await asyncio.wait({asking}, timeout=None if left == math.inf else left)
            if not asking.done():
                self._member.poll(loop_time())
                self._apply()

    def _failed(self, error: Exception) -> None:
        self._look_again()
        found = translate(error, self._where)
        if isinstance(found, TransientAdapterError):
            log.warning("%s: asking again in %.1f s", found, self._backoff, extra=REPEATS)
        else:
            self._refuse(found)

    def _look_again(self) -> None:
        self._coordinator.moved()
        self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)

    def _refuse(self, error: ConsumerSdkError) -> None:
        if self._refusal is None and not self._is_closing:
            self._refusal = error
            self._wake_fetch()

    # -- what the member wants done -----------------------------------------------------------

    def _apply(self) -> None:
        for event in self._member.events():
            self._do(event)
        if self._member.epoch >= 0:
            self._joined.set()
        if self._is_curious and (self._learning is None or self._learning.done()):
            self._learning = asyncio.create_task(self._learn(), name="kafka: topic names")

    @property
    def _is_curious(self) -> bool:
        """Whether the member waits for metadata."""
        return bool(self._member.unknown_topic_ids or self._member.group_topics - self._others)

    def _do(self, event: Event) -> None:
        match event:
            case Assigned(tps):
                self._assign(tps)
            case Revoked(tps):
                self._revoke(tps)
            case Lost(tps, reason):
                self._lose(tps, reason)
            case CoordinatorLost():
                self._look_again()
            case Refused(offered=offered) if offered:
                self._unlike = offered
            case Refused(code, message):
                self._refuse(self._speech.refusal(code, message, f"joining {self._where}"))

    async def _explain(self) -> None:
        """Refuses the member, and says which assignors the group's members have; without an answer the error says less."""
        offered, self._unlike = self._unlike, ()
        members: ClassicMembers | None = None
        try:
            async with asyncio.timeout(self._patience):
                members = await describe_members(self._coordinator, self._group)
        except (KafkaError, OSError, TimeoutError) as error:
            log.info("%s does not say how its members share out: %r", self._where, error)
        self._refuse(unlike(offered, f"joining {self._where}", members))

    def _assign(self, tps: frozenset[TopicPartition]) -> None:
        """Gives partitions to the owner; those that it still drains of an older membership follow when the drain has ended."""
        for drain in self._drains.values():
            drain.late |= drain.tps & tps
            tps -= drain.tps
        if tps and not self._is_closing:
            self._owner.assign(tps)

    def _revoke(self, tps: frozenset[TopicPartition]) -> None:
        """Whoever closes drains all that is held."""
        if self._is_closing:
            return
        for drain in self._drains.values():
            drain.late -= tps
        taken, drain = self._owner.take(tps), Drain(tps)
        task = asyncio.create_task(self._drain(drain, taken), name="kafka: draining")
        self._drains[task] = drain
        task.add_done_callback(self._forget)

    def _forget(self, drain: asyncio.Task[None]) -> None:
        self._drains.pop(drain, None)

    async def _drain(self, drain: Drain, taken: Any) -> None:
        try:
            await self._owner.drain(taken)
        finally:
            # It ends here, before the task does: what its release gives anew must not wait for it.
            if (task := asyncio.current_task()) is not None:
                self._forget(task)
            if drain.to_release:
                self._member.released(drain.to_release, loop_time())
            if drain.late and not self._is_closing:
                self._owner.assign(drain.late)
            self._work.set()

    def _lose(self, tps: frozenset[TopicPartition], reason: str) -> None:
        for drain in self._drains.values():
            drain.to_release -= tps
            drain.late -= tps
        self._owner.lose(tps, reason)

    async def _learn(self) -> None:
        """The names of topics that the group has assigned by their ids, and topics of other members."""
        backoff = FIRST_BACKOFF
        while self._is_curious:
            try:
                await self._look_at_ids()
                await self.look_at_others()
            except AdapterError as error:
                log.warning("%s: %s", self._where, error, extra=REPEATS)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def _look_at_ids(self) -> None:
        wanted = self._member.unknown_topic_ids
        if wanted:
            found = await describe_topic_ids(self._cluster, wanted)
            self.see({**self.topics, **infos_of(found)})

    async def look_at_others(self) -> None:
        """Topics that other members alone have subscribed to, whose leader this one is.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        names = self._member.group_topics
        if names:
            known = infos_of(await describe_topics(self._cluster, sorted(names)))
            self._others = names
            self._member.group_metadata_changed({n: known.get(n) for n in names}, loop_time())
            self._work.set()


def _speech(*, is_classic: bool) -> Speech:
    return Speech(to_wire, from_wire, partial(refusal, is_classic=is_classic), unsupported)


def infos_of(topics: Mapping[str, Topic]) -> dict[str, TopicInfo]:
    """The topics that there are, as a member knows them."""
    present = [topic for topic in topics.values() if not topic.error]
    return {t.name: TopicInfo(t.topic_id or NO_TOPIC_ID, len(t.partitions)) for t in present}
