"""A process of a share group: a membership, sessions with brokers, locks, and handlers that take their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Event,
    Lost,
    Refused,
    Revoked,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.share.locks import Locks, Ticket
from consumer_sdk.adapters.kafka.share.member import ShareMember
from consumer_sdk.adapters.kafka.share.messages import (
    AckType,
    AcquiredRange,
    Answer,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
    TopicIdPartition,
)
from tests.sim.kafka_share.line import Line
from tests.sim.kafka_share.plan import Life
from tests.sim.stoppable import Stoppable

if TYPE_CHECKING:
    from tests.sim.kafka_share.scene import ShareScene

__all__ = ["Process"]

LOOKUP_PATIENCE = 0.5
METADATA_INTERVAL = 5.0
EXPIRY_INTERVAL = 1.0
WAITS = 1.0
"""Mean seconds until a handler tries again here."""


@dataclass(slots=True)
class Held:
    """One partition, as a process reads it.

    Attributes:
        node: its leader, as far as the process knows.
        deliveries: of what is handled: which one of the process's it is, and the broker's count.
        doubted: the last delivery of which the broker may have taken everything back, unasked.
        settled: what is to be said with the next flush.
    """

    tip: TopicIdPartition
    node: int | None = None
    is_read: bool = True
    locks: Locks = field(default_factory=Locks)
    deliveries: dict[int, tuple[int, int]] = field(default_factory=dict)
    doubted: int = 0
    settled: dict[int, AckType] = field(default_factory=dict)


class Process(Stoppable):
    """One, from its start to its end.

    Attributes:
        held: by partition, also those that are drained.
        late: records that were settled after their locks had ended.
    """

    def __init__(
        self, scene: ShareScene, name: str, slot: int, member: ShareMember, life: Life
    ) -> None:
        super().__init__(scene.agenda)
        self.scene, self.name, self.slot, self.member, self.life = scene, name, slot, member, life
        self.held: dict[TopicIdPartition, Held] = {}
        self.lines: dict[int, Line] = {}
        self.is_leaving, self.is_refused = False, False
        self.stopped_at = -inf
        self._queue: deque[tuple[Held, int, int]] = deque()
        self._busy = 0
        self._delivery = 0
        self._node: int | None = None
        self._request: ShareGroupHeartbeat | None = None
        self._number = 0
        self._wakes_at = inf
        self._will_flush = False

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Asks for leaders and coordinator, then joins."""
        self.tell("starts")
        self._look_leaders()
        self._look_coordinator()
        self.after(EXPIRY_INTERVAL, self._expire)

    def end(self) -> None:
        """As its life says: it is gone at once, or leaves."""
        if self.is_alive and not self.is_leaving:
            if self.life.ending == "kill":
                self.kill()
            else:
                self.run(self.leave)

    def kill(self) -> None:
        """It is gone, wherever it is; its connections are, too."""
        self.tell("is killed")
        self.is_alive = False
        for line in self.lines.values():
            if not line.is_closed:
                line.hang_up(is_killed=True)
        self.scene.ledger.died(self)

    def leave(self) -> None:
        """Finishes what its handlers have begun, flushes, ends its sessions, and leaves."""
        if self.is_leaving:
            return
        self.tell("leaves")
        self.is_leaving = True
        self._queue.clear()
        self.after(self.scene.chance.uniform(0.0, 3.0), self._last_flush)

    def _last_flush(self) -> None:
        for held in self.held.values():
            self._flush(held)
        self.after(self.scene.plan.request_timeout, self._close)

    def _close(self) -> None:
        for line in self.lines.values():
            line.close()
        self.member.leave(self.now)
        self._work()
        self.after(2 * self.scene.plan.request_timeout, self._gone)

    def _gone(self) -> None:
        if self.is_alive:
            self.tell("is gone")
            self.is_alive = False
            for line in self.lines.values():
                line.hang_up(is_killed=True)
            self.scene.ledger.died(self)

    def tell(self, *what: object) -> None:
        """Traces it."""
        self.scene.tell(self.name, *what)

    # -- the membership ---------------------------------------------------------------------------

    def _work(self) -> None:
        self._take_events()
        if self._node is not None and self._request is None and self.is_alive:
            request = self.member.poll(self.now)
            if request is not None:
                self._ask(request)
            self._take_events()
        at = self.member.wake_at()
        if self._node is not None and at < self._wakes_at:
            self._wakes_at = at
            self.scene.agenda.at(at, lambda: self._wake(at))

    def _wake(self, at: float) -> None:
        if self._wakes_at == at:
            self._wakes_at = inf
            self.run(self._work)

    def _ask(self, request: ShareGroupHeartbeat) -> None:
        assert self._node is not None
        self.tell("beats", request)
        self._request, self._number = request, self._number + 1
        number = self._number
        self.scene.network.send(
            self.slot,
            self._node,
            f"{self.name}/group",
            request,
            lambda answer: self.run(lambda: self._heard(number, request, answer)),
        )
        self.after(self.scene.plan.request_timeout, lambda: self._given_up(number, request))

    def _heard(self, number: int, request: ShareGroupHeartbeat, answer: Answer) -> None:
        assert isinstance(answer, ShareGroupHeartbeatAnswer)
        if number == self._number and self._request is request:
            self._request = None
            self.tell("is told", answer)
            self.member.answered(request, answer, self.now)
            self._work()

    def _given_up(self, number: int, request: ShareGroupHeartbeat) -> None:
        if number == self._number and self._request is request:
            self._request = None
            self.member.failed(request, self.now)
            self._work()

    def _take_events(self) -> None:
        for event in self.member.events():
            self._take(event)
        if self.is_leaving and self.member.has_left:
            self._gone()

    def _take(self, event: Event) -> None:
        self.tell(event)
        match event:
            case Assigned(tps):
                for tip in self.scene.tips_of(tps):
                    self._assign(tip)
            case Revoked(tps):
                for tip in self.scene.tips_of(tps):
                    self._stop_reading(tip)
                self.after(self.scene.chance.uniform(0.0, 3.0), lambda: self._drained(tps))
            case Lost(tps):
                for tip in self.scene.tips_of(tps):
                    self._stop_reading(tip)
                    self._give_back(tip)
            case CoordinatorLost():
                self._node = None
                self._look_coordinator()
            case Refused():
                self.is_refused = True
        self._kick()

    def _drained(self, tps: frozenset[TopicPartition]) -> None:
        for tip in self.scene.tips_of(tps):
            self._give_back(tip)
        self.member.released(tps & self.member.held, self.now)
        self._work()

    # -- who coordinates and leads ----------------------------------------------------------------

    def _look_coordinator(self) -> None:
        if self._node is None and self.is_alive:
            self.scene.network.ask(self.slot, lambda: self.run(self._found_coordinator))
            self.after(LOOKUP_PATIENCE, self._look_coordinator)

    def _found_coordinator(self) -> None:
        if self._node is None:
            self._node = self.scene.cluster.coordinator
            self.member.metadata_changed(self.scene.topics.by_name(), self.now)
            self._work()

    def _look_leaders(self) -> None:
        self.look_up()
        self.after(METADATA_INTERVAL, self._look_leaders)

    def look_up(self) -> None:
        """Asks who leads what."""
        self.scene.network.ask(self.slot, lambda: self.run(self._found_leaders))

    def _found_leaders(self) -> None:
        for held in list(self.held.values()):
            self._place(held, self.scene.told_leader(held.tip))

    def _place(self, held: Held, node: int) -> None:
        """Another leader: what was acquired of the old one is the group's again."""
        if node == held.node or self.is_leaving:
            return
        if held.node is not None:
            self.tell(f"{held.tip.partition} is led by {node} now")
            self.lines[held.node].session.drop(held.tip)
            self._forget(held)
        held.node = node
        if node not in self.lines:
            self.lines[node] = Line(self, node)
        self.lines[node].session.locks[held.tip] = held.locks
        self.lines[node].work()

    def moved(self, tip: TopicIdPartition) -> None:
        """A broker says that it does not lead this one."""
        held = self.held.get(tip)
        if held is not None:
            self._forget(held)
        self.look_up()

    def _forget(self, held: Held) -> None:
        held.locks.clear()
        held.deliveries.clear()
        held.settled.clear()

    # -- partitions -------------------------------------------------------------------------------

    def _assign(self, tip: TopicIdPartition) -> None:
        held = self.held.get(tip)
        if held is None:
            held = self.held[tip] = Held(tip)
        held.is_read = True
        if held.node is None:
            self._place(held, self.scene.told_leader(tip))

    def _stop_reading(self, tip: TopicIdPartition) -> None:
        if (held := self.held.get(tip)) is not None:
            held.is_read = False
            self._queue = deque(entry for entry in self._queue if entry[0] is not held)

    def _give_back(self, tip: TopicIdPartition) -> None:
        """What is still held comes to others at once."""
        held = self.held.get(tip)
        if held is None or held.is_read or held.node is None:
            return
        self._flush(held)
        line = self.lines[held.node]
        line.session.acknowledge(
            tip, held.locks.settle(held.locks.offsets, AckType.RELEASE, self.now)
        )
        held.deliveries.clear()
        line.work()

    def read_from(self, node: int) -> Iterable[TopicIdPartition]:
        """What is to be fetched of that one."""
        if self.is_leaving:
            return []
        return [tip for tip, held in self.held.items() if held.is_read and held.node == node]

    def room(self) -> int:
        """How many records may be fetched."""
        waiting = len(self._queue)
        return self.scene.plan.max_held if waiting < self.scene.plan.max_held else 0

    def _kick(self) -> None:
        for line in list(self.lines.values()):
            line.work()

    # -- records ----------------------------------------------------------------------------------

    def acquired(self, line: Line, tip: TopicIdPartition, ranges: Sequence[AcquiredRange]) -> None:
        """What a fetch brought."""
        held = self.held.get(tip)
        if held is None or held.node != line.node:
            return
        if not held.is_read or self.is_leaving:
            given = [at for first, last, _ in ranges for at in range(first, last + 1)]
            line.session.acknowledge(tip, held.locks.settle(given, AckType.RELEASE, self.now))
            return
        gaps: list[int] = []
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                held.settled.pop(offset, None)
                if not self.scene.has_record(tip, offset):
                    gaps.append(offset)
                    continue
                self._delivery += 1
                held.deliveries[offset] = self._delivery, count
                self._queue.append((held, offset, self._delivery))
        line.session.acknowledge(tip, held.locks.settle(gaps, AckType.GAP, self.now))
        self._begin()

    def doubt(self, node: int) -> None:
        """What was acquired of this broker may be others' by now."""
        for held in self.held.values():
            if held.node == node:
                held.doubted = self._delivery

    def _begin(self) -> None:
        """Starts handlers, as many as there may be."""
        for held in self.held.values():
            self._drop_expired(held)
        while self._queue and self._busy < self.scene.plan.workers:
            held, offset, delivery = self._queue.popleft()
            if self._is_current(held, offset, delivery) and offset in held.locks:
                self._handle(held, offset, delivery)

    def _is_current(self, held: Held, offset: int, delivery: int) -> bool:
        return held.deliveries.get(offset, (0, 0))[0] == delivery

    def _handle(self, held: Held, offset: int, delivery: int) -> None:
        self.scene.ledger.handled(self, held.tip, offset, is_doubted=delivery <= held.doubted)
        self._busy += 1
        plan, chance = self.scene.plan, self.scene.chance
        duration = chance.expovariate(1 / plan.service) if plan.service else 0.0
        if chance.random() < 0.03:
            duration *= 10
        self.after(duration, partial(self._handled, held, offset, delivery))

    def _handled(self, held: Held, offset: int, delivery: int) -> None:
        self._busy -= 1
        if self._is_current(held, offset, delivery):
            self._decide(held, offset, delivery)
        self._begin()
        self._kick()

    def _decide(self, held: Held, offset: int, delivery: int) -> None:
        """A record that is retried on its last delivery is rejected, with a dead letter."""
        plan, chance = self.scene.plan, self.scene.chance.random()
        is_last_time = held.deliveries[offset][1] >= plan.limits.delivery_count_limit
        if chance < plan.waits:
            pause = self.scene.chance.expovariate(1 / WAITS)
            self.after(pause, lambda: self._again(held, offset, delivery))
            return
        kind = AckType.ACCEPT
        if chance < plan.waits + plan.retries:
            kind = AckType.REJECT if is_last_time else AckType.RELEASE
        elif chance < plan.waits + plan.retries + plan.rejects:
            kind = AckType.REJECT
        if kind is AckType.REJECT:
            self.scene.ledger.dead_lettered(held.tip, offset)
        if kind is AckType.ACCEPT:
            self.scene.ledger.done(held.tip, offset)
        held.settled[offset] = kind
        del held.deliveries[offset]
        self._flush_later()

    def _again(self, held: Held, offset: int, delivery: int) -> None:
        if self._is_current(held, offset, delivery):
            self._queue.append((held, offset, delivery))
            self._begin()

    # -- flushes ----------------------------------------------------------------------------------

    def _drop_expired(self, held: Held) -> None:
        held.locks.expire(self.now)
        for offset in [at for at in held.deliveries if at not in held.locks]:
            self.scene.ledger.expired(self, held.tip, offset)
            del held.deliveries[offset]

    def _flush_later(self) -> None:
        """There is something to say."""
        if not self._will_flush:
            self._will_flush = True
            self.after(self.scene.plan.flush, self._flush_all)

    def _flush_all(self) -> None:
        self._will_flush = False
        for held in list(self.held.values()):
            self._flush(held)

    def _flush(self, held: Held) -> None:
        """Says what was settled: what is not held any more is counted, and nothing else."""
        settled, held.settled = held.settled, {}
        if not settled or held.node is None:
            held.settled = settled
            return
        ticket = Ticket(lambda error: self._flushed(held, settled, error))
        released = [at for at, kind in settled.items() if kind is AckType.RELEASE]
        others = {at: kind for at, kind in settled.items() if kind is AckType.REJECT}
        positions = [at for at in settled if settled[at] is not AckType.RELEASE]
        groups = [
            held.locks.settle(positions, AckType.ACCEPT, self.now, ticket, others),
            held.locks.settle(released, AckType.RELEASE, self.now, ticket),
        ]
        line = self.lines[held.node]
        for group in groups:
            line.session.acknowledge(held.tip, group)
        line.work()

    def _flushed(self, held: Held, settled: Mapping[int, AckType], error: Exception | None) -> None:
        """Without an answer it is said again, if it is held still."""
        if error is None:
            self.scene.ledger.flushed(self, held.tip, settled)
            return
        for offset, kind in settled.items():
            if offset in held.locks and offset not in held.deliveries:
                held.settled.setdefault(offset, kind)
                self._flush_later()

    def _expire(self) -> None:
        self._begin()
        self._kick()
        if self.is_alive:
            self.after(EXPIRY_INTERVAL, self._expire)
