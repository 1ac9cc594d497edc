"""One connected client, and all that works on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.client.client import connect, make_consumer, stop_client
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.topics import Topic, await_topics
from consumer_sdk.adapters.kafka.commits.committed_offsets import CommittedOffsets
from consumer_sdk.adapters.kafka.commits.committing import Committer
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.granting import Granting
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.membership import Membership
from consumer_sdk.adapters.kafka.consumer.offsets import Offsets
from consumer_sdk.adapters.kafka.consumer.revoking import Failures, Revoking
from consumer_sdk.adapters.kafka.consumer.watching import TopicWatch
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.records import Run

__all__ = ["Session"]


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
        self._consumer: Any = make_consumer(**options.for_consumer())
        self._stall = StallDetector(options)
        self._joining: asyncio.Task[None] | None = None
        self._closing = asyncio.Lock()
        self.is_closed = False
        self._failures = Failures(self.wake)
        self.grants = AssignmentBook[Grant]()
        self.buffer = FetchBuffer(self._consumer, self.grants, options)
        self.offsets = Offsets(self._consumer, options.request_timeout)
        self.limit = MetadataLimit(self._consumer)
        self.committer = Committer(self._consumer, self.grants, options, self.limit)
        self.committed_offsets = CommittedOffsets(self.offsets, self.limit, options.group or "")
        self._rounds = GrantRounds(
            owner,
            self.grants,
            self._grant_all,
            failed=self._failures.keep,
            budget=options.revoke_budget,
        )
        revoking = Revoking(self._rounds, self.grants, self._failures)
        self.granting = Granting(
            self._consumer,
            rounds=self._rounds,
            grants=self.grants,
            offsets=self.offsets,
            revoking=revoking,
            opens=self.buffer.add,
            opened=self.wake,
        )
        self._membership = Membership(
            self._consumer,
            self.grants,
            self.granting,
            revoking,
            self._failures,
            session=min(options.session_timeout, options.rebalance_timeout),
        )
        self._watch = TopicWatch(
            self._consumer,
            self.grants,
            self.granting,
            options.topics,
            finds_partitions=options.group is None,
        )

    # -- opening ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects, looks at the topics, joins, learns the limit of commits.

        Raises:
            ConfigurationError: a topic does not exist, or the group refuses the options.
            AdapterError: the servers cannot be reached, or refused.
        """
        topics = await keep_trying(self._connect, self._options.connect_timeout)
        self._check(topics.values())
        tps = frozenset(TopicPartition(t.name, p) for t in topics.values() for p in t.partitions)
        self.granting.known = tps
        await self._join(tps)
        if self._options.group is not None:
            await self.limit.learn()

    async def _connect(self, seconds: float) -> dict[str, Topic]:
        client = self._consumer._client
        await connect(client, seconds)
        return await await_topics(client, self._options.topics)

    def _check(self, topics: Iterable[Topic]) -> None:
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

    async def _join(self, tps: frozenset[TopicPartition]) -> None:
        """Joins the group. Another member's drain may hold that up: it then goes on behind."""
        consumer, group = self._consumer, self._options.group
        if group is None:
            consumer.assign(sorted(tps))
        else:
            consumer.subscribe(self._options.topics, listener=self._membership)
        self._joining = asyncio.create_task(consumer.start(), name="kafka: joining")
        await asyncio.wait({self._joining}, timeout=self._options.connect_timeout)
        self._raise_failed_join()
        if consumer._fetcher is None:
            raise TransientAdapterError(f"joining group {group!r}: the broker does not answer")
        consumer._fetcher._fetch_task.cancel()  # what is fetched is in the buffer
        if group is None:
            self.granting.offer(tps)

    def _raise_failed_join(self) -> None:
        task = self._joining
        if task is not None and task.done():
            self._joining = None
            if not task.cancelled() and (error := task.exception()):
                raise translate(error, f"joining group {self._options.group!r}")

    # -- running ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Grants partitions and watches the topics, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds.run())
            group.create_task(self._watch.run())

    async def _grant_all(self) -> None:
        await self.granting.grant_all()

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """What is there, or what comes within ``max_wait`` seconds."""
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
        """Nothing else watches the client's tasks: a dead one would look like an idle topic."""
        self._failures.raise_kept()
        self._raise_failed_join()
        self.buffer.check()
        coordinator = self._consumer._coordinator
        task = getattr(coordinator, "_coordination_task", None)
        try:
            if task is not None and task.cancelled():
                raise self._ended("coordination", task)
            coordinator.check_errors()
        except KafkaError as error:
            raise translate(error, f"group {self._options.group!r}") from error

    @staticmethod
    def _ended(name: str, task: asyncio.Task[Any]) -> AdapterError:
        reason = None if task.cancelled() else task.exception()
        error = AdapterError(f"the client's {name} task has ended ({reason!r}); close the consumer")
        error.__cause__ = reason
        return error

    @property
    def held_until(self) -> float:
        """See `consumer_sdk.abc.Adapter.held_until`."""
        return self._membership.held_until

    def wake(self) -> None:
        """Lets a waiting fetch look again."""
        self.buffer.wake()

    # -- closing ----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Revokes everything, leaves, closes the connections."""
        async with self._closing:
            if self.is_closed:
                return
            await self._membership.aclose()
            if self._joining is not None:
                self._joining.cancel()
                await asyncio.wait({self._joining})
                self._joining = None
            await self.buffer.aclose()
            await stop_client(self._consumer)
            self.is_closed = True
