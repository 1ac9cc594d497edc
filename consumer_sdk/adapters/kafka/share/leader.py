"""The session with one leader: sends the requests of its `ShareSession`, and passes the answers on."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.connections import Channel, loop_time
from consumer_sdk.adapters.kafka.client.faults import STALE, translate
from consumer_sdk.adapters.kafka.share.grants import ShareGrant
from consumer_sdk.adapters.kafka.share.locks import AckGroup
from consumer_sdk.adapters.kafka.share.messages import (
    AckType,
    FetchedPartition,
    TopicIdPartition,
)
from consumer_sdk.adapters.kafka.share.session import (
    TOO_MANY_SESSIONS,
    Received,
    Request,
    ShareSession,
)
from consumer_sdk.adapters.kafka.share.structs import from_wire, to_wire
from consumer_sdk.errors import AdapterError, ConsumerSdkError, TransientAdapterError
from consumer_sdk.log_limits import REPEATS

__all__ = ["ShareLeader"]

log = logging.getLogger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = 0.05, 1.0
"""Seconds."""
REST = 0.2
"""Seconds for which a partition that its leader refused is left alone."""
CLOSING = 2.0
"""Seconds that the end of a session may take."""


class ShareLeader:
    """One node that leads partitions of the group.

    Args:
        room: how many records may be fetched now; 0 for none.
        received: called when there may be something to hand out.
        moved: called for a partition that another node leads, or nobody.
        failed: called with an error that does not pass.
        looked: called when it was looked whose locks have ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: int,
        session: ShareSession,
        *,
        room: Callable[[], int],
        received: Callable[[], None],
        moved: Callable[[ShareGrant], None],
        failed: Callable[[Exception], None],
        looked: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._node = node
        self.session = session
        self._room = room
        self._received = received
        self._moved = moved
        self._failed = failed
        self._looked = looked
        self._grants: dict[TopicIdPartition, ShareGrant] = {}
        self._work = asyncio.Event()
        self._backoff = 0.0

    # -- partitions -----------------------------------------------------------------------------

    def add(self, grant: ShareGrant) -> None:
        """Adds a partition that this node leads."""
        self._grants[grant.tip] = grant
        self.session.locks[grant.tip] = grant.locks
        self.kick()

    def remove(self, grant: ShareGrant) -> None:
        """Removes a partition: another node leads it, or this member no longer reads it."""
        if self._grants.get(grant.tip) is grant:
            del self._grants[grant.tip]
            self.session.drop(grant.tip)
            self.kick()

    def release(self, grant: ShareGrant) -> None:
        """Removes a partition, and releases its records, so that other members get them at once."""
        grant.tell_given_up()
        group = grant.locks.settle(grant.locks.offsets, AckType.RELEASE, loop_time())
        while grant.said:
            self.session.acknowledge(grant.tip, grant.said.popleft())
        self.session.acknowledge(grant.tip, group)
        if self._grants.get(grant.tip) is grant:
            del self._grants[grant.tip]
        self.kick()

    def acknowledge(self, grant: ShareGrant, group: AckGroup) -> None:
        """Puts acknowledgements into the next request."""
        self.session.acknowledge(grant.tip, group)
        self.kick()

    def kick(self) -> None:
        """Wakes the task, since there may be something to send."""
        self._work.set()

    # -- the conversation -----------------------------------------------------------------------

    async def run(self) -> None:
        """Sends one request after another until it is cancelled."""
        while True:
            now = loop_time()
            self._work.clear()
            wanted = {tip for tip, grant in self._grants.items() if grant.wants_records(now)}
            request = self.session.poll(now, wanted, self._room())
            self._looked()
            if request is None:
                await self._rest(now)
            else:
                await self._ask(request)

    async def _rest(self, now: float) -> None:
        """Waits until there is something to send."""
        rests = [g.rests_until for g in self._grants.values() if g.rests_until > now]
        until = min([self.session.wake_at(), *rests])
        try:
            async with asyncio.timeout(None if until == math.inf else max(until - now, 0.001)):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _ask(self, request: Request) -> None:
        try:
            answer = from_wire(await self._send(request))
        except (KafkaError, OSError, TimeoutError) as error:
            found = translate(error, f"node {self._node}: reading as a member of a share group")
            self.session.failed(request, TransientAdapterError(str(found)))
            await self._back_off(found)
            return
        except asyncio.CancelledError:
            self.session.failed(request, TransientAdapterError("the consumer is closing"))
            raise
        received = self.session.answered(request, answer)
        self._take(received)
        if received.error:
            await self._back_off(self._error(received))
        else:
            self._backoff = 0.0
            if received.throttle:
                await asyncio.sleep(received.throttle)

    async def _send(self, request: Request) -> Any:
        return await self._cluster.send(self._node, to_wire(request), channel=Channel.FETCHES)

    @staticmethod
    def _error(received: Received) -> ConsumerSdkError:
        if received.error == TOO_MANY_SESSIONS:
            return TransientAdapterError(
                "the broker has no room for one more share session: raise its group.share.max.share.sessions, or run fewer "
                f"members (error {received.error})"
            )
        error = for_code(received.error)(received.message)
        return translate(error, "reading as a member of a share group")

    async def _back_off(self, error: ConsumerSdkError) -> None:
        """Waits before the next request; an error that will not pass is also raised by the next fetch."""
        self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
        if not isinstance(error, TransientAdapterError):
            self._failed(error)
        log.warning("%s; asking again in %.2f s", error, self._backoff, extra=REPEATS)
        self._cluster.request_refresh()
        await asyncio.sleep(self._backoff)

    # -- what came ------------------------------------------------------------------------------

    def _take(self, received: Received) -> None:
        for why in received.refusals:
            log.info("acknowledgements came too late: %s", why, extra=REPEATS)
        for tip, part in received.partitions.items():
            grant = self._grants.get(tip)
            if grant is None:
                self._return(tip)
                continue
            if part.acquired:
                grant.add(part)
            if part.error:
                self._refused(grant, part)
        for tip in received.lost:
            if (grant := self._grants.get(tip)) is not None:
                self._moved(grant)
        if any(part.acquired for part in received.partitions.values()):
            self._received()

    def _return(self, tip: TopicIdPartition) -> None:
        """Releases records of a partition that was given up while the fetch was under way."""
        locks = self.session.locks.get(tip)
        if locks is not None:
            group = locks.settle(locks.offsets, AckType.RELEASE, loop_time())
            self.session.acknowledge(tip, group)

    def _refused(self, grant: ShareGrant, part: FetchedPartition) -> None:
        grant.rests_until = loop_time() + REST
        if part.error in STALE or part.error == UNKNOWN_ID:
            self._moved(grant)
            return
        error = translate(for_code(part.error)(part.message), f"fetching {grant.tp}")
        log.warning("%s", error, extra=REPEATS)
        if isinstance(error, AdapterError) and not isinstance(error, TransientAdapterError):
            self._failed(error)

    # -- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends the session, so that the broker releases what it still holds at once. Never raises; bounded."""
        for grant in self._grants.values():
            grant.tell_given_up()
        request, failure = self.session.close(loop_time()), None
        try:
            if request is not None:
                async with asyncio.timeout(CLOSING):
                    await self._send(request)
        except (KafkaError, OSError, TimeoutError, IncompatibleBrokerVersion) as error:
            failure = TransientAdapterError(f"node {self._node} did not hear of the end: {error!r}")
            log.info("node %s: the share session ends with its connection: %r", self._node, error)
        finally:
            self.session.end(failure)


UNKNOWN_ID = 100
