"""Conversations of some members with a leader of a share partition, drawn from a seed and played against the model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    AckBatch,
    AckType,
    AcquireMode,
    FetchedPartition,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    TopicIdPartition,
)
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    Limits,
    PendingFetch,
    RecordState,
    ShareCluster,
    ShareOptions,
)

__all__ = ["BATCHES", "LOCK", "Conversation", "Note", "Request", "Step", "note"]

LOCK = 60.0
MEMBERS = 3
KEPT = "kept"
"""A member that stays, so that the broker does not forget the share partition."""
Request = ShareFetch | ShareAcknowledge
Note = tuple[object, ...]
SETTLED = (AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.GAP)
BATCHES = (1, 4, 7, 2, 10, 1, 1, 5, 3, 6)


@dataclass(frozen=True, slots=True)
class Step:
    """What one member says, and what the model answers; or a connection of its that ends."""

    line: str
    request: Request | None
    expected: Note


@dataclass(slots=True)
class Player:
    """A member as it plays: what it holds, and what comes next of its session."""

    member_id: str
    epoch: int = OPEN_EPOCH
    held: set[int] = field(default_factory=set)


def note(answer: ShareFetchAnswer | ShareAcknowledgeAnswer, tp: TopicIdPartition) -> Note:
    """What of an answer is compared."""
    if answer.error:
        return (int(answer.error),)
    if isinstance(answer, ShareAcknowledgeAnswer):
        acked = answer.partitions.get(tp)
        return 0, None if acked is None else int(acked.error)
    found = answer.partitions.get(tp, FetchedPartition())
    return 0, int(found.error), int(found.ack_error), tuple(map(tuple, found.acquired))


class Conversation:
    """One seed's.

    Attributes:
        steps: in their order.
        limits: of the group.
    """

    def __init__(self, seed: int, group: str, topic_id: bytes) -> None:
        self.random = random.Random(seed)
        self.limits = limits = Limits(
            lock_duration=LOCK,
            delivery_count_limit=self.random.choice((2, 3, 4, 5, 5, 6)),
            is_renewable=self.random.random() < 0.8,
        )
        topics = ClusterTopics(self.random)
        topics.create("t", 1, topic_id)
        self.group, self.tp = group, TopicIdPartition(topic_id, 0)
        options = ShareOptions(limits=limits, is_latest=False)
        self.cluster = ShareCluster(topics, options)
        self.now = 0.0
        for size in BATCHES:
            self.cluster.append(self.tp, size, self.now)
        self.steps: list[Step] = []
        names = [KEPT, *(f"m{number}" for number in range(MEMBERS))]
        self.players = {
            name: Player(str(UUID(int=self.random.getrandbits(128), version=4))) for name in names
        }

    def play(self, length: int) -> list[Step]:
        """Draws so many steps, and begins with one that has the share partition loaded."""
        self._fetch(KEPT, most=1, mode=AcquireMode.RECORD_LIMIT)
        self._acknowledge(KEPT, [AckBatch(0, 0, (AckType.RELEASE,))])
        while len(self.steps) < length:
            name = self.random.choice([name for name in self.players if name != KEPT])
            chance = self.random.random()
            if chance < 0.4:
                self._fetch_some(name)
            elif chance < 0.8:
                self._acknowledge_some(name)
            elif chance < 0.86:
                self._say_nonsense(name)
            elif chance < 0.9:
                self.players[name].epoch = OPEN_EPOCH
                self._fetch_some(name)
            elif not self._is_any_available():
                # Releasing takes the broker a moment, in which others would get what comes after it.
                self._end(name)
                self._fetch(KEPT, most=1, mode=AcquireMode.RECORD_LIMIT)
        return self.steps

    # -- what is said -----------------------------------------------------------------------------

    def _fetch_some(self, name: str) -> None:
        player, chance = self.players[name], self.random
        has_acks = player.epoch != OPEN_EPOCH and chance.random() < 0.4
        acks = self._acks(player, is_final=True) if has_acks else []
        mode = chance.choice(list(AcquireMode))
        self._fetch(
            name,
            acks,
            most=chance.choice((1, 2, 3, 5, 8, 20, 500)),
            batch_size=chance.choice((1, 3, 5, 500)),
            mode=mode,
        )

    def _fetch(
        self,
        name: str,
        acks: list[AckBatch] | None = None,
        *,
        most: int,
        mode: AcquireMode,
        batch_size: int = 500,
    ) -> None:
        player = self.players[name]
        topics = {self.tp: acks or []}
        request = ShareFetch(
            self.group,
            player.member_id,
            player.epoch,
            max_wait=0.0,
            max_records=most,
            batch_size=batch_size,
            acquire_mode=mode,
            topics=topics,
        )
        self._say(name, request)

    def _acknowledge_some(self, name: str) -> None:
        player = self.players[name]
        if player.epoch == OPEN_EPOCH:
            self._fetch_some(name)
        else:
            is_renewed = self.random.random() < 0.2
            self._acknowledge(
                name, self._acks(player, has_renewals=is_renewed), has_renewals=is_renewed
            )

    def _acknowledge(self, name: str, acks: list[AckBatch], *, has_renewals: bool = False) -> None:
        player = self.players[name]
        topics = {self.tp: acks} if acks else {}
        self._say(
            name,
            ShareAcknowledge(
                self.group,
                player.member_id,
                player.epoch,
                has_renewals=has_renewals,
                topics=topics,
            ),
        )

    def _acks(
        self, player: Player, *, has_renewals: bool = False, is_final: bool = False
    ) -> list[AckBatch]:
        """Of some that it holds; now and then of others, too."""
        chance = self.random
        offsets = sorted(player.held)
        if chance.random() < 0.7:
            offsets = [offset for offset in offsets if chance.random() < 0.6]
        if chance.random() < 0.08:
            offsets = sorted({*offsets, chance.randrange(45)})
        kinds: tuple[AckType, ...] = SETTLED
        if has_renewals:
            kinds = (*SETTLED, AckType.RENEW, AckType.RENEW)
        if is_final:  # whether the fetch itself finds what is released is a race at the broker
            kinds = (AckType.ACCEPT, AckType.REJECT)
        return self._batches(offsets, kinds)

    def _batches(self, offsets: list[int], kinds: tuple[AckType, ...]) -> list[AckBatch]:
        batches: list[AckBatch] = []
        is_uniform = self.random.random() < 0.5
        kind = self.random.choice(kinds)
        for offset in offsets:
            one = kind if is_uniform else self.random.choice(kinds)
            if batches and batches[-1].last == offset - 1:
                types = batches[-1].types if is_uniform else (*batches[-1].types, one)
                batches[-1] = AckBatch(batches[-1].first, offset, types)
            else:
                batches.append(AckBatch(offset, offset, (one,)))
        return batches

    def _say_nonsense(self, name: str) -> None:
        player, chance = self.players[name], self.random
        acks = chance.choice(
            (
                [AckBatch(5, 3, (AckType.ACCEPT,))],
                [AckBatch(4, 6, (AckType.ACCEPT, AckType.ACCEPT))],
                [AckBatch(4, 6, ())],
                [AckBatch(4, 6, (AckType.RENEW,))],
                [AckBatch(4, 4, (7,))],
                [AckBatch(8, 9, (AckType.ACCEPT,)), AckBatch(2, 3, (AckType.ACCEPT,))],
                [AckBatch(300, 301, (AckType.ACCEPT,))],
            )
        )
        epoch = player.epoch if chance.random() < 0.5 else chance.choice((0, 1, 3, 9))
        request: Request = ShareAcknowledge(
            self.group, player.member_id, epoch, topics={self.tp: acks}
        )
        if chance.random() < 0.4:
            request = ShareFetch(
                self.group,
                player.member_id,
                epoch,
                max_wait=0.0,
                max_records=1,
                topics={self.tp: acks},
            )
        self._say(name, request)

    def _end(self, name: str) -> None:
        """Its session ends: it says so, or its connection does."""
        player = self.players[name]
        if self.random.random() < 0.4:
            self.steps.append(Step(name, None, ()))
            self.cluster.disconnect(0, name, self._tick())
            player.epoch = OPEN_EPOCH
            player.held.clear()
            return
        acks = {self.tp: self._acks(player, is_final=True)}
        request: Request = ShareAcknowledge(self.group, player.member_id, CLOSE_EPOCH, topics=acks)
        if self.random.random() < 0.5:
            request = ShareFetch(
                self.group, player.member_id, CLOSE_EPOCH, max_wait=0.0, topics=acks
            )
        self._say(name, request)

    # -- the model --------------------------------------------------------------------------------

    def _say(self, name: str, request: Request) -> None:
        answer = self.cluster.request(request, self._tick(), node=0, connection=name)
        if isinstance(answer, PendingFetch):
            self.cluster.advance(self._tick())
            assert answer.answer is not None
            answer = answer.answer
        assert isinstance(answer, ShareFetchAnswer | ShareAcknowledgeAnswer)
        self._follow(self.players[name], request)
        self.steps.append(Step(name, request, note(answer, self.tp)))

    def _follow(self, player: Player, request: Request) -> None:
        session = self.cluster.brokers[0].sessions.sessions.get((self.group, player.member_id))
        player.epoch = session.epoch if session else OPEN_EPOCH
        states = self.cluster.brokers[0].partitions[self.group, self.tp].states()
        for each in self.players.values():
            each.held = {
                offset for offset, (_, _, member) in states.items() if member == each.member_id
            }

    def _is_any_available(self) -> bool:
        partition = self.cluster.brokers[0].partitions[self.group, self.tp]
        states = partition.states().values()
        return partition.end < sum(BATCHES) - 1 or any(
            state is RecordState.AVAILABLE for state, *_ in states
        )

    def _tick(self) -> float:
        self.now += 0.001
        return self.now
