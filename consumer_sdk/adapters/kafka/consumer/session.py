"""An open adapter: one connected cluster, and the parts that use it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.consumer.committing import Committer
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.granting import Failures, Granting, Holdings, Revoking
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.membership import Membership
from consumer_sdk.adapters.kafka.consumer.offsets import CommittedOffsets, Offsets
from consumer_sdk.adapters.kafka.consumer.watching import (
    AloneTopics,
    Look,
    Topics,
    TopicWatch,
    await_chosen,
    partitions_of,
)
from consumer_sdk.adapters.kafka.fetch.fetcher import FetchChannel
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.records import Run

__all__ = ["Session"]

log = logging.getLogger(__name__)


class StallDetector:
    """Tells a broker that does not answer from a topic without records."""

    def __init__(self, options: KafkaOptions) -> None:
        longest_wait = options.client_options.get("fetch_max_wait_ms", 500) / 1000
        self._limit = options.request_timeout + longest_wait
        self._servers = ", ".join(options.servers)
        self._mark: int | None = None
        self._since = 0.0

    def look(self, mark: int | None, now: float) -> None:
        """Compares with the last look.

        Raises:
            TransientAdapterError: no fetch was answered for longer than a request may take.
        """
        if mark is None or mark != self._mark:
            self._mark, self._since = mark, now
        elif now - self._since > self._limit:
            self._since, waited = now, now - self._since
            raise TransientAdapterError(
                f"no answer to any fetch for {waited:.0f} s: are {self._servers} reachable, and "
                f"have the partitions leaders?"
            )


class Session:
    """From open to close.

    Attributes:
        grants: the partitions held.
        coordinator: the broker that keeps the group.
        granting: grants them, and takes drops.
        offsets: asks the broker for positions.
        limit: how much metadata a commit may carry.
        committer: commits.
        committed_offsets: reads commits back.
        buffer: what was fetched.
        is_closed: nothing works any more.
    """

    def __init__(self, options: KafkaOptions, owner: AssignmentOwner) -> None:
        self._options = options
        self._cluster = cluster = Cluster(options.for_cluster(), options.topics or None)
        self._stall = StallDetector(options)
        self._closing = asyncio.Lock()
        self.is_closed = False
        self._failures = Failures(self.wake)
        self.grants = AssignmentBook[Grant]()
        self.coordinator = coordinator = GroupCoordinator(cluster, options.group or "")
        self.buffer = FetchBuffer(FetchChannel(cluster), self.grants, options)
        self.offsets = Offsets(
            cluster, coordinator, level=options.level, timeout=options.request_timeout
        )
        self.limit = MetadataLimit(cluster, options.group or "")
        self.committer = Committer(cluster, self.grants, options, self.limit, coordinator)
        self.committed_offsets = CommittedOffsets(
            self.offsets, self.grants, self.limit, options.group or ""
        )
        self._rounds = GrantRounds(
            owner,
            self.grants,
            lambda: self.granting.grant_all(),
            failed=self._failures.keep,
            budget=options.revoke_budget,
        )
        self._revoking = Revoking(self._rounds, self.grants, self._failures)
        self.granting = Granting(
            cluster,
            rounds=self._rounds,
            grants=self.grants,
            offsets=self.offsets,
            revoking=self._revoking,
            has_group=options.group is not None,
            opens=self.buffer.add,
            opened=self.wake,
        )
        self._holdings = Holdings(
            self.grants,
            self.granting,
            self._revoking,
            self._failures,
            unread=options.unread_topics,
        )
        self._membership = (
            None
            if options.group is None
            else Membership(cluster, coordinator, self._holdings, options, wake=self.wake)
        )

    @property
    def options(self) -> KafkaOptions:
        """With the protocol that was decided on, once it is open."""
        return self._options

    def _topics_seen(self) -> Look:
        """Who is told of the topics at each look."""
        if self._membership is not None:
            return self._membership.seen
        is_pattern = self._options.pattern is not None
        return AloneTopics(self._holdings, self.granting, gone_is_left=is_pattern).seen

    # -- opening ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects, looks at the topics, joins, learns the limit of commits.

        Raises:
            ConfigurationError: a topic does not exist, or the group refuses the options.
            AdapterError: the servers cannot be reached, or refused.
        """
        await self._cluster.open(self._options.connect_timeout)
        if self._membership is not None:
            self._options = await self._membership.decide()
        topics = await keep_trying(self._look, self._options.connect_timeout)
        self._check(topics.values())
        self.granting.known = partitions_of(topics)
        await self._join(topics)
        if self._options.group is not None:
            await self.limit.learn()

    async def _look(self, _seconds: float) -> dict[str, Topic]:
        return await await_chosen(self._cluster, self._options)

    def _check(self, topics: Collection[Topic]) -> None:
        if not topics:
            log.warning(
                "pattern=%r matches no topic on %s yet; those that are made later are read",
                *(self._options.pattern, ", ".join(self._options.servers)),
            )
        for topic in topics:
            if topic.is_absent:
                raise ConfigurationError(
                    f"topic {topic.name!r} does not exist on {', '.join(self._options.servers)}, "
                    f"and consuming never creates one: check the name, or create it first"
                )
            if topic.is_forbidden:
                raise AdapterError(
                    f"topic {topic.name!r}: this principal may not describe it; grant it "
                    f"Describe and Read (ACLs)"
                )

    async def _join(self, topics: Topics) -> None:
        """Joins the group. Another member's drain may hold that up: it then goes on behind."""
        if self._membership is not None:
            await self._membership.join(topics)
        else:
            self._holdings.assign(self.granting.known)

    # -- running ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Grants partitions and watches the topics, until cancelled."""
        watch = TopicWatch(
            self._cluster, self.grants, self.granting, self._options, self._topics_seen()
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds.run())
            group.create_task(watch.run())

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """Returns what was fetched, or waits up to ``max_wait`` seconds for records."""
        self._raise_errors()
        # What is salvaged comes first, also while other partitions always have something:
        #   1. records are taken: they are nowhere else any more;
        #   2. salvaging waits for a broker, and the fetch is cancelled;
        #   3. nobody has the records.
        # So nothing may be awaited between taking and returning.
        salvage = self.buffer.salvage
        if salvage.waiting:
            await salvage.run()
        runs = self.buffer.take(max_records, max_bytes)
        if runs:
            return runs
        time = asyncio.get_running_loop().time
        deadline = time() + max_wait
        while not runs and (left := deadline - time()) > 0:
            await (salvage.run() if salvage.waiting else self.buffer.wait(left))
            self._raise_errors()
            runs = self.buffer.take(max_records, max_bytes)
        if not runs:
            self._stall.look(self.buffer.last_answer(), time())
        return runs

    def _raise_errors(self) -> None:
        """Raises errors of the background tasks: a task that died would look like an idle topic."""
        self._failures.raise_kept()
        self.buffer.check()
        if self._membership is not None:
            self._membership.check()

    @property
    def held_until(self) -> float:
        """See `consumer_sdk.abc.Adapter.held_until`."""
        return math.inf if self._membership is None else self._membership.held_until

    def wake(self) -> None:
        """Lets a waiting fetch look again."""
        self.buffer.wake()

    # -- closing ----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Revokes everything, leaves, closes the connections."""
        async with self._closing:
            if self.is_closed:
                return
            if self._membership is not None:
                await self._membership.drain()
            await self._holdings.end()
            if self._membership is not None:
                await self._membership.leave()
            await self.buffer.aclose()
            await self._cluster.aclose()
            self.is_closed = True
