"""The oracle: what may never happen to a share group's records, judged from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka.share.messages import AckType, TopicIdPartition
from consumer_sdk.testing.kafka import Outcome, RecordState

if TYPE_CHECKING:
    from tests.sim.kafka_share.process import Process
    from tests.sim.kafka_share.scene import ShareScene

__all__ = ["Ledger"]

Place = tuple[TopicIdPartition, int]


class Ledger:
    """Watches all processes of a scene.

    Attributes:
        deliveries: records that were given to a handler.
        letters: records with a dead letter.
        handlers_done: records whose handler has returned.
        confirmed: records that a process knows to be settled, and since when.
        expiries: locks that ended while their process was running.
        dead: member ids of processes that are gone, and when they went.
    """

    def __init__(self, scene: ShareScene) -> None:
        self._scene = scene
        self.deliveries = 0
        self.letters: set[Place] = set()
        self.handlers_done: set[Place] = set()
        self.dead: dict[str, float] = {}
        self.confirmed: dict[Place, float] = {}
        self.expiries = 0

    def handled(
        self, process: Process, tip: TopicIdPartition, offset: int, *, is_doubted: bool
    ) -> None:
        """A handler gets a record: its process believes that it has it acquired."""
        self.deliveries += 1
        at = self.confirmed.get((tip, offset))
        # One that begins to handle it while nobody can tell it that the broker has given it to another one.
        assert at is None or is_doubted, (
            f"{process.name} handles {tip.partition}:{offset}, which was accepted at {at:.3f}"
        )

    def dead_lettered(self, tip: TopicIdPartition, offset: int) -> None:
        """A dead letter is durable."""
        self.letters.add((tip, offset))

    def done(self, tip: TopicIdPartition, offset: int) -> None:
        """A handler has returned."""
        self.handlers_done.add((tip, offset))

    def flushed(
        self, process: Process, tip: TopicIdPartition, settled: Mapping[int, AckType]
    ) -> None:
        """A flush is durable, as far as the process knows: what the broker took never comes again."""
        outcomes = self._scene.cluster.outcomes(self._scene.group, tip)
        for offset in settled:
            if outcomes.get(offset) in {Outcome.ACCEPTED, Outcome.REJECTED}:
                self.confirmed.setdefault((tip, offset), self._scene.agenda.now)

    def expired(self, process: Process, tip: TopicIdPartition, offset: int) -> None:
        """A lock has ended while the process lives, and runs."""
        self.expiries += 1
        assert not self._scene.plan.keeps_locks, (
            f"{process.name} does not renew {tip.partition}:{offset} in time"
        )

    def died(self, process: Process) -> None:
        """A process is gone."""
        self.dead[process.member.member_id] = self._scene.agenda.now

    # -- what is looked at now and then -----------------------------------------------------------

    def check_dead(self) -> None:
        """The records of the dead come back in their time."""
        plan, now = self._scene.plan, self._scene.agenda.now
        # A request of a dead process may arrive late, and a fetch waits at the broker for a moment.
        patience = plan.limits.lock_duration + 4 * plan.request_timeout + 61.0
        late = {member for member, at in self.dead.items() if now > at + patience}
        for tip, offset, state, member in self._scene.in_flight():
            assert state is not RecordState.ACQUIRED or member not in late, (
                f"{tip.partition}:{offset} is acquired by {member}, which is dead"
            )

    def is_settled(self) -> bool:
        """Each record has come to an end."""
        return not any(self._unsettled())

    def _unsettled(self) -> Iterator[Place]:
        """Offsets with a record, or in flight, that have not come to an end."""
        for tip, log in self._scene.cluster.logs.items():
            outcomes = self._scene.cluster.outcomes(self._scene.group, tip)
            for batch in log.batches:
                for offset in range(batch.base, batch.last + 1):
                    if offset not in outcomes:
                        yield tip, offset

    def check_settled(self) -> None:
        """Each record has come to an end that somebody knows of."""
        for tip, offset in self._unsettled():
            raise AssertionError(f"{tip.partition}:{offset} is {self._scene.state(tip, offset)}")
        for tip in self._scene.cluster.logs:
            outcomes = self._scene.cluster.outcomes(self._scene.group, tip)
            for offset, found in outcomes.items():
                place = f"{tip.partition}:{offset}"
                assert self._is_right((tip, offset), found), f"{place} is {found.name}"

    def _is_right(self, place: Place, found: Outcome) -> bool:
        match found:
            case Outcome.ACCEPTED:
                return place in self.handlers_done
            case Outcome.REJECTED:
                return place in self.letters
            case Outcome.LIMIT:
                # What is given back unhandled, where others join, counts as delivered.
                return not self._scene.plan.keeps_locks or len(self._scene.plan.slots) > 1
            case Outcome.GAP | Outcome.REMOVED:
                return not self._scene.has_record(*place)

    def check_left(self) -> None:
        """Whoever has left holds nothing."""
        for tip, offset, state, member in self._scene.in_flight():
            assert state is not RecordState.ACQUIRED, (
                f"{tip.partition}:{offset} is left to {member}"
            )
