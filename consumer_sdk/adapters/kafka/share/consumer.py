"""One member of a share group, from open to close: its membership, its grants, and the leaders that it reads from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState, next_epoch
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.cluster_metadata import ClusterMetadata
from consumer_sdk.adapters.kafka.client.faults import name_of, names_of, translate
from consumer_sdk.adapters.kafka.client.topics import Topic, await_topics, describe_topics
from consumer_sdk.adapters.kafka.groups.coordinator import GroupCoordinator
from consumer_sdk.adapters.kafka.groups.runner import MemberRunner, infos_of
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.kafka.share.grants import ShareGrant
from consumer_sdk.adapters.kafka.share.group_configs import (
    GroupLimits,
    learn_limits,
    set_beginning,
)
from consumer_sdk.adapters.kafka.share.leader import ShareLeader
from consumer_sdk.adapters.kafka.share.locks import Ticket
from consumer_sdk.adapters.kafka.share.member import ShareMember
from consumer_sdk.adapters.kafka.share.messages import AcquireMode, TopicIdPartition
from consumer_sdk.adapters.kafka.share.offsets import (
    DESCRIBE_OFFSETS,
    TELLS_LAG_FROM,
    share_offsets,
)
from consumer_sdk.adapters.kafka.share.refusals import SPEECH, unsupported
from consumer_sdk.adapters.kafka.share.session import FetchLimits, ShareSession
from consumer_sdk.adapters.kafka.share.structs import ACKNOWLEDGE, FETCH, RENEWS_FROM
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.adapters.session import ReadAheadSession, fetch
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    PartitionLostError,
    TransientAdapterError,
)
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import AckFlush, Assignment, Outcome, OutcomeKind, Partition, Run

__all__ = ["ShareConsumer"]

log = logging.getLogger(__name__)

STUCK = 5.0
"""Seconds without an acknowledgement after which somebody should know that a partition is full."""
LAST_HAND_OUT, LOOK_AGAIN = 5.0, 0.02
"""Seconds for which records on their last delivery are handed out of what is taken away; between two looks."""
DECLINED = 5.0
"""Seconds until a partition that the owner did not take is offered again."""


class ShareConsumer(ReadAheadSession):
    """One member, as the adapter sees it.

    Attributes:
        limits: the group's, once it is open.
        renews: locks can be renewed: the broker and the group allow it.
        tells_lag: the broker knows how many records the group has not settled.
        grants: what is held.
    """

    def __init__(self, options: KafkaOptions, owner: AssignmentOwner) -> None:
        super().__init__(f"kafka share group {options.share_group}", lambda: ())
        self._options = options
        self._owner = owner
        self._group = options.share_group or ""
        self._where = f"share group {self._group!r}"
        self._cluster = Cluster(options.for_cluster(), options.topics)
        self._coordinator = GroupCoordinator(self._cluster, self._group)
        self.limits = GroupLimits()
        self.renews = True
        self.tells_lag = False
        self.grants = AssignmentBook[ShareGrant]()
        self._rounds = GrantRounds(
            owner,
            self.grants,
            self._grant_all,
            failed=self._failed,
            budget=options.rebalance_timeout,
        )
        self._topics: dict[str, Topic] = {}
        self._runner: MemberRunner | None = None
        self._member_id = ""
        self._leaders: dict[int, ShareLeader] = {}
        self._room = 0
        self._lagless: set[TopicPartition] = set()

    # -- opening --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects, and reads what the broker and the group allow.

        Raises:
            ConfigurationError: a topic is not there, or the broker has no share groups.
            AdapterError: the broker does not answer, or refuses.
        """
        options = self._options
        await self._cluster.open(options.connect_timeout)
        await self._check_versions()
        self._topics = await self._described()
        await keep_trying(self._learn, options.connect_timeout)

    async def join(self) -> None:
        """Joins the group.

        Raises:
            ConfigurationError: the group is of another type, or share groups are switched off.
            AdapterError: the group refuses the member.
        """
        options = self._options
        self._begin()
        member = ShareMember(
            self._group,
            topics=options.topics,
            drain=options.rebalance_timeout,
            rack=options.client_options.get("client_rack") or None,
        )
        self._member_id = member.member_id
        self._runner = MemberRunner(
            member,
            self._coordinator,
            self,
            group=self._group,
            is_classic=False,
            cluster=self._cluster,
            join_patience=options.request_timeout,
            wake=self.news.set,
            speech=SPEECH,
        )
        self._cluster.add_listener(self._metadata_changed, each=True)
        self._runner.start(infos_of(self._topics))
        await self._runner.wait_joined(options.connect_timeout)

    async def _check_versions(self) -> None:
        try:
            versions = await self._cluster.versions(None)
        except KafkaError as error:
            raise translate(error, f"opening {self._where}") from error
        if not {FETCH, ACKNOWLEDGE} <= versions.keys() or versions[FETCH][1] < 1:
            raise unsupported(None, f"opening {self._where}")
        self.renews = min(versions[FETCH][1], versions[ACKNOWLEDGE][1]) >= RENEWS_FROM
        self.tells_lag = versions.get(DESCRIBE_OFFSETS, (0, -1))[1] >= TELLS_LAG_FROM
        if self._options.acquire_mode == "record_limit" and not self.renews:
            raise ConfigurationError(
                f"opening {self._where}: acquire_mode='record_limit' needs Kafka 4.2: leave it out, or update the brokers"
            )

    async def _described(self) -> dict[str, Topic]:
        """Looks up the subscribed topics, again for a while, since a new topic may not be known to all brokers yet."""
        found = await await_topics(self._cluster, self._options.topics)
        missing = [topic for topic in found.values() if topic.error]
        if missing:
            raise _missing(missing)
        return found

    async def _learn(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 1.0)):
                self.limits = await learn_limits(self._cluster, self._group)
                await set_beginning(
                    self._cluster, self._group, self.limits, self._options.initial_position
                )
        except IncompatibleBrokerVersion as error:
            raise unsupported(error, f"opening {self._where}") from error
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, f"asking for the configuration of {self._where}") from error
        self.renews = self.renews and self.limits.renews

    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        return (self._rounds.run(),)

    def check(self) -> None:
        """Sees that the membership lives.

        Raises:
            ConsumerSdkError: it has ended, or the group refuses it.
        """
        if self._runner is not None:
            self._runner.check()

    # -- what the group says ---------------------------------------------------------------------

    def assign(self, tps: Collection[tuple[str, int]]) -> None:
        """Offers partitions that the group assigns to this member; other members may have them too."""
        if self.grants.is_closing:
            return
        for topic, number in sorted(tps):
            self._offer(TopicPartition(topic, number))
        self._rounds.wake()

    def _offer(self, tp: TopicPartition) -> None:
        topic_id = self._topic_id(tp.topic)
        if topic_id is None:
            return
        assignment = Assignment(Partition(tp.topic, str(tp.partition)), next_epoch())
        checks = bool(self._options.client_options.get("check_crcs", True))
        self.grants.offer(
            ShareGrant(
                assignment,
                TopicIdPartition(topic_id, tp.partition),
                most=self._options.max_batch_bytes,
                checks=checks,
                limit=self.limits.locks,
                deliveries=self.limits.deliveries,
            )
        )

    def _topic_id(self, topic: str) -> bytes | None:
        known = {} if self._runner is None else self._runner.topics
        return known[topic].topic_id if topic in known else self._cluster.topic_id(topic)

    def take(self, tps: Collection[tuple[str, int]]) -> list[ShareGrant]:
        """Stops fetching these partitions."""
        grants = [g for g in self.grants if tuple(g.tp) in {tuple(tp) for tp in tps}]
        self.grants.drain(grant for grant in grants if not grant.finish())
        self._kick()
        self.news.set()
        return grants

    async def drain(self, taken: Sequence[ShareGrant]) -> None:
        """Lets the owner finish the records in its handlers, and gives the others back."""
        if taken:
            await self._hand_out_last(taken)
            await self._rounds.revoke(taken)
            self._give_back(taken)

    async def _hand_out_last(self, taken: Sequence[ShareGrant]) -> None:
        """Waits until what is on its last delivery was handed out; not for long, for the owner may want nothing."""
        until = asyncio.get_running_loop().time() + min(LAST_HAND_OUT, self._rounds.budget / 4)
        while any(grant.has_run for grant in taken):
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, LOOK_AGAIN))

    def lose(self, tps: Collection[tuple[str, int]], reason: str) -> None:
        """Drops the partitions of a membership that is lost."""
        grants = [g for g in self.grants if tuple(g.tp) in {tuple(tp) for tp in tps}]
        if grants:
            log.warning("%s is lost: %s", names_of(g.tp for g in grants), reason)
        self._rounds.lose(grants)
        self._give_back(grants)

    def _give_back(self, grants: Sequence[ShareGrant]) -> None:
        """Tells leaders that this member gives up what it still holds: else others wait until the locks end."""
        for grant in grants:
            leader = self._leader_of(grant)
            if leader is not None:
                leader.release(grant)

    async def _grant_all(self) -> None:
        answer = await self._rounds.ask(self.grants)
        for grant in answer.started:
            if self.grants.open(grant):
                self._place(grant)
        if answer.declined:
            loop = asyncio.get_running_loop()
            loop.call_later(DECLINED, self.assign, [tuple(g.tp) for g in answer.declined])

    # -- who leads what -------------------------------------------------------------------------

    def _metadata_changed(self, _metadata: ClusterMetadata) -> None:
        for grant in self.grants.within(GrantState.OPEN, GrantState.DRAINING):
            self._place(grant)

    def _place(self, grant: ShareGrant) -> None:
        """Has the partition's leader read it. If the leader has changed, the broker has released what was acquired."""
        try:
            node = self._cluster.leader_of(grant.tp).node
        except KafkaError:
            self._cluster.request_refresh()
            return
        if node == grant.node or self._closing is not None:
            return
        self._leave_leader(grant)
        grant.node = node
        self._leader(node).add(grant)

    def _leave_leader(self, grant: ShareGrant) -> None:
        leader = self._leader_of(grant)
        if leader is None:
            return
        leader.remove(grant)
        grant.node = None
        if lost := grant.lose():
            log.info("%s has another leader: %d records come again", name_of(grant.tp), lost)

    def _moved(self, grant: ShareGrant) -> None:
        """A node says that it does not lead the partition."""
        grant.lose()
        self._cluster.request_refresh()

    def _leader_of(self, grant: ShareGrant) -> ShareLeader | None:
        return None if grant.node is None else self._leaders.get(grant.node)

    def _leader(self, node: int) -> ShareLeader:
        known = self._leaders.get(node)
        if known is None:
            session = ShareSession(
                self._group, self._member_id, self._fetch_limits(), renews=self.renews
            )
            known = self._leaders[node] = ShareLeader(
                self._cluster,
                node,
                session,
                room=self._wanted,
                received=self._received,
                moved=self._moved,
                failed=self._failed,
                looked=self._look_for_ended,
            )
            _ = self._spawn(known.run())
        return known

    def _fetch_limits(self) -> FetchLimits:
        client, default = self._options.client_options, FetchLimits()
        wait = client.get("fetch_max_wait_ms", default.max_wait * 1000) / 1000
        is_strict = self._options.acquire_mode == "record_limit"
        return FetchLimits(
            max_wait=wait,
            busy_wait=min(wait, default.busy_wait),
            min_bytes=client.get("fetch_min_bytes", default.min_bytes),
            max_bytes=client.get("fetch_max_bytes", default.max_bytes),
            acquire_mode=AcquireMode.RECORD_LIMIT if is_strict else AcquireMode.BATCH_OPTIMIZED,
        )

    # -- fetching -------------------------------------------------------------------------------

    def _wanted(self) -> int:
        """Returns how many records may be fetched: what somebody waits for, and one answer ahead.

        What is acquired is nobody else's. So a consumer that has enough asks for no more.
        """
        return self._room

    def _received(self) -> None:
        self._room = 0
        self.news.set()

    def _look_for_ended(self) -> None:
        """Others may have what is held no more: what waits of it is not handed out."""
        # 1. The process is frozen. 2. The locks end, and others are given the records. 3. It goes on, with a queue
        # full of them, and would handle each beside another member.
        for grant in self.grants:
            if ended := grant.locks.ended:
                grant.locks.ended = []
                self._owner.lapsed(grant.assignment, ended)

    def _look_at_limits(self) -> None:
        """Logs which partitions bring no records because the group holds as many as the broker allows."""
        now = asyncio.get_running_loop().time()
        for grant in self.grants:
            if grant.locks.is_full and now - grant.locks.settled_at > STUCK:
                log.warning(
                    "%s: %d records are acquired here and not settled, of %d that the broker allows the group in a "
                    "partition: no more come before some are settled. Raise share.partition.max.record.locks of the "
                    "group, or have fewer records wait for a retry",
                    *(name_of(grant.tp), len(grant.locks), self.limits.locks),
                    extra=REPEATS,
                )

    def _kick(self) -> None:
        for leader in self._leaders.values():
            leader.kick()

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """The next runs, each partition in its turn."""

        async def collect() -> list[Run]:
            self.check()
            self.raise_error()
            ready = [grant for grant in self.grants if grant.has_run]
            for grant in ready:
                grant.locks.expire(asyncio.get_running_loop().time())
            self._look_for_ended()
            runs = self._turns.take(ready, ShareGrant.take, max_records, max_bytes)
            for grant in ready:
                self._pass_on(grant)
            if not any(grant.has_run for grant in ready):
                self._room = max(max_records, 1)
                for leader in self._leaders.values():
                    leader.session.max_bytes = max_bytes
                self._kick()
            return runs

        runs = await fetch(collect, self.news, max_wait)
        if not runs:
            self._room = 0
            self._look_at_limits()
        return runs

    def _pass_on(self, grant: ShareGrant) -> None:
        """Acknowledges gaps, and releases what could not be read."""
        leader = self._leader_of(grant)
        while grant.said:
            group = grant.said.popleft()
            if leader is not None:
                leader.acknowledge(grant, group)

    # -- acknowledging --------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Sends acknowledgements, in one request for each leader if none is refused; returns the outcome of each flush."""
        waiting = [self._commit(flush) for flush in flushes]
        return [outcome if isinstance(outcome, Outcome) else await outcome for outcome in waiting]

    def _commit(self, flush: AckFlush) -> Outcome | asyncio.Future[Outcome]:
        grant = self.grants.of(flush.assignment)
        if grant is None:
            error = PartitionLostError(f"{flush.assignment.partition} is not held any more")
            return Outcome(OutcomeKind.FENCED, error=error)
        leader = self._leader_of(grant)
        if leader is None:
            text = f"{flush.assignment.partition} has no leader at the moment"
            return Outcome.retry(TransientAdapterError(text))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def done(error: Exception | None) -> None:
            if not future.done():
                future.set_result(_outcome_of(grant, ticket, error))

        ticket = Ticket(done)
        groups = grant.acks_of(flush, loop.time(), ticket)
        if ticket.late:
            log.info("%s", _late(grant, ticket.late), extra=REPEATS)
        if not groups:
            return _outcome_of(grant, ticket, None)
        for group in groups:
            leader.acknowledge(grant, group)
        return future

    # -- partitions ------------------------------------------------------------------------------

    def pause(self, assignment: Assignment) -> None:
        """See `Adapter.pause`."""
        grant = self.grants.of(assignment)
        if grant is not None:
            grant.is_paused = True

    def resume(self, assignment: Assignment) -> None:
        """See `Adapter.resume`."""
        grant = self.grants.of(assignment)
        if grant is not None:
            grant.resume()
            self.news.set()
            self._kick()

    def drop(self, assignment: Assignment) -> None:
        """See `Adapter.drop`."""
        grant = self.grants.of(assignment)
        if grant is not None and grant.is_held:
            self._rounds.lose([grant])
            self._give_back([grant])
            self.assign([tuple(grant.tp)])

    async def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        found = (await describe_topics(self._cluster, [topic])).get(topic)
        return [] if found is None or found.is_absent else sorted(found.partitions)

    async def lags(self, partitions: Collection[Partition]) -> dict[Partition, int | None]:
        """Records of each that nobody in the group has settled; None where the broker does not tell.

        Raises:
            AdapterError: it does not answer, or refuses.
        """
        if not self.tells_lag:
            return dict.fromkeys(partitions)
        tps = {each: TopicPartition(each.stream, int(each.id)) for each in partitions}
        begun = {grant.tp for grant in self.grants if grant.locks.has_settled}.intersection(
            tps.values()
        )
        try:
            found = await share_offsets(
                self._cluster, self._group, tps.values(), begun=begun - self._lagless
            )
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, f"asking how far {self._where} has come") from error
        self._note_lagless({tp for tp in begun if found[tp].lag is None})
        return {each: found[tp].lag for each, tp in tps.items()}

    def _note_lagless(self, tps: set[TopicPartition]) -> None:
        """The broker was asked about these again, in vain: it is not, before it knows them once more."""
        if new := tps - self._lagless:
            log.warning(
                "%s: the broker does not tell the lag of %s, although records of it are settled; it may not reach its "
                "share coordinator",
                *(self._where, names_of(new)),
                extra=REPEATS,
            )
        self._lagless = tps

    # -- the end --------------------------------------------------------------------------------

    async def _close(self) -> None:
        self.grants.end_offers()
        try:
            if self._runner is not None:
                await self._runner.drained()
            if self.grants:
                await self._rounds.revoke(list(self.grants))
        finally:
            await self._end_tasks()
            await asyncio.gather(*(leader.close() for leader in self._leaders.values()))
            if self._runner is not None:
                await self._runner.leave()
            await self._cluster.aclose()


def _outcome_of(grant: ShareGrant, ticket: Ticket, error: Exception | None) -> Outcome:
    """Of a flush that was answered: what came too late is done with, and not durable."""
    if error is not None:
        return Outcome.retry(error)
    lost = PartitionLostError(_late(grant, ticket.late)) if ticket.late else None
    return Outcome(OutcomeKind.DURABLE, error=lost)


def _late(grant: ShareGrant, count: int) -> str:
    return (
        f"{name_of(grant.tp)}: {count} records were settled after their locks had ended; they come again, here or at "
        f"another member"
    )


def _missing(topics: Sequence[Topic]) -> ConsumerSdkError:
    names = ", ".join(repr(topic.name) for topic in topics)
    if any(topic.is_forbidden for topic in topics):
        return AdapterError(f"the topics {names}: grant this principal DESCRIBE and READ (ACLs)")
    return ConfigurationError(
        f"there is no topic {names} (error {topics[0].error}): create it, or correct the name; this package creates none"
    )
