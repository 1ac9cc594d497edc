"""One life of a share group: brokers, members, and what befalls them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from uuid import UUID

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.share.member import ShareMember
from consumer_sdk.adapters.kafka.share.messages import TopicIdPartition
from consumer_sdk.testing import Simulation
from consumer_sdk.testing.kafka import ClusterTopics, RecordState, ShareCluster, ShareOptions
from tests.sim.agenda import Agenda
from tests.sim.kafka_share.ledger import Ledger
from tests.sim.kafka_share.network import Network
from tests.sim.kafka_share.plan import END, Life, make_plan
from tests.sim.kafka_share.process import Process

__all__ = ["ShareScene"]

RESTART = 3.0
"""Seconds after which a process that was refused is started again."""
SLICE = 2.0
STALE = 0.2
"""Chance that somebody is told of a leader that is none any more."""


class ShareScene:
    """What one seed stands for; it needs no event loop, and `live` never waits."""

    group = "g"
    topic = "t"

    def __init__(self, simulation: Simulation, trace: Callable[[str], None] | None) -> None:
        self._trace = trace
        self.chance = chance = random.Random(simulation.random.getrandbits(64))
        self.plan = plan = make_plan(chance)
        self.agenda = Agenda()
        self.topics = ClusterTopics(chance)
        topic_id = self.topics.create(self.topic, plan.partitions).topic_id
        self.tips = [TopicIdPartition(topic_id, number) for number in range(plan.partitions)]
        options = ShareOptions(
            limits=plan.limits,
            is_latest=False,
            session_timeout=plan.session_timeout,
            heartbeat_interval=plan.heartbeat_interval,
        )
        self.cluster = ShareCluster(self.topics, options, plan.nodes)
        self.network = Network(self.agenda, chance, plan, self.cluster)
        self.ledger = Ledger(self)
        self.processes: list[Process] = []
        self._former: dict[TopicIdPartition, int] = {}
        self._started = 0

    async def live(self) -> int:
        """Runs it; returns how many deliveries there were."""
        self.tell(f"{self.plan}")
        self._schedule()
        for _ in range(6):
            self.agenda.run_until(self.agenda.now + END / 6)
            self.ledger.check_dead()
        self._calm()
        self._run_until(self.ledger.is_settled)
        self.ledger.check_settled()
        self.ledger.check_dead()
        self._leave_all()
        return self.ledger.deliveries

    def _schedule(self) -> None:
        plan, at = self.plan, self.agenda.at
        for when, number, count in plan.appends:
            at(when, partial(self._append, self.tips[number], count))
        for slot, lives in enumerate(plan.slots):
            for life in lives:
                at(life.start, partial(self.start, slot, life))
        spells = ((plan.stops, self._stop), (plan.cuts, self._cut))
        for moments, befall in spells:
            for when, slot, duration in moments:
                at(when, partial(befall, slot, duration))
        self._schedule_brokers()

    def _schedule_brokers(self) -> None:
        plan, at = self.plan, self.agenda.at
        events = (
            (plan.moves, self._move),
            (plan.restarts, self._restart),
            (plan.compactions, self._compact),
        )
        for moments, befall in events:
            for when in moments:
                at(when, befall)
        lasting = ((plan.failovers, self._fail_over), (plan.outages, self._fail_to_store))
        for spells, begin in lasting:
            for when, duration in spells:
                at(when, partial(begin, duration))

    def _append(self, tip: TopicIdPartition, count: int) -> None:
        self.tell(f"{count} records for {tip.partition}")
        self.cluster.append(tip, count, self.agenda.now)
        self.network.look()

    def start(self, slot: int, life: Life) -> None:
        """Starts a process."""
        self._started += 1
        member_id = str(UUID(int=self.chance.getrandbits(128), version=4))
        member = ShareMember(self.group, topics=(self.topic,), drain=5.0, member_id=member_id)
        process = Process(self, f"p{slot}.{self._started}", slot, member, life)
        self.processes.append(process)
        process.start()
        if life.end < inf:
            self.agenda.at(life.end, process.end)

    # -- what befalls them ------------------------------------------------------------------------

    def _living(self, slot: int | None = None) -> list[Process]:
        return [
            process
            for process in self.processes
            if process.is_alive and slot in (None, process.slot)
        ]

    def _stop(self, slot: int, duration: float) -> None:
        for process in self._living(slot)[-1:]:
            process.stop(min(duration, END - self.agenda.now))

    def _cut(self, slot: int, duration: float) -> None:
        self.tell(f"slot {slot} is cut off for {duration:.3f}")
        self.network.cut_off(slot, duration)

    def _move(self) -> None:
        tip, node = self.chance.choice(self.tips), self.chance.randrange(self.plan.nodes)
        former = self.cluster.leader(tip)[0]
        if node != former:
            self.tell(f"{tip.partition} is led by {node}")
            self._former[tip] = former
            self._doubt(former)
            self.cluster.move(tip, node, self.agenda.now)
            self.network.look()

    def _restart(self) -> None:
        node = self.chance.randrange(self.plan.nodes)
        self.tell(f"node {node} starts again")
        self._doubt(node)
        self.cluster.restart(node, self.agenda.now)
        for process in self._living():
            if (line := process.lines.get(node)) is not None:
                self.network.gone.add(line.connection)

    def _doubt(self, node: int) -> None:
        """No process can know this of the broker before it asks it."""
        for process in self._living():
            process.doubt(node)

    def _fail_over(self, load_time: float) -> None:
        node = self.chance.randrange(self.plan.nodes)
        self.tell(f"the coordinator is on node {node}, and loads for {load_time}")
        self.cluster.fail_over(self.agenda.now, node, load_time)

    def _compact(self) -> None:
        log = self.cluster.log(self.chance.choice(self.tips))
        if log.batches:
            batch = self.chance.choice(log.batches)
            self.tell(f"{batch.base} to {batch.last} are compacted away")
            log.compact(batch.base)

    def has_record(self, tip: TopicIdPartition, offset: int) -> bool:
        """Whether the log has one there."""
        batches = self.cluster.log(tip).batches
        return any(batch.base <= offset <= batch.last for batch in batches)

    def _fail_to_store(self, duration: float) -> None:
        self.tell(f"nothing is stored for {duration}")
        self.cluster.fails_to_store = True
        self.agenda.after(duration, self._store_again)

    def _store_again(self) -> None:
        self.cluster.fails_to_store = False

    def _run_until(self, is_so: Callable[[], bool]) -> None:
        """Lets things happen until it is so, but no longer than a group needs to settle."""
        end = self.agenda.now + self.plan.settling
        while not is_so() and self.agenda.now < end:
            self.agenda.run_until(min(self.agenda.now + SLICE, end))

    # -- the end ----------------------------------------------------------------------------------

    def _calm(self) -> None:
        self.tell("calm")
        self.network.is_faulty = False
        self.network.cut.clear()
        self.cluster.fails_to_store = False

    def _leave_all(self) -> None:
        for process in self._living():
            process.run(process.leave)
        self._run_until(lambda: not self._living())
        assert not self._living(), f"{[process.name for process in self._living()]} do not leave"
        self.ledger.check_left()

    # -- what the others ask for --------------------------------------------------------------------

    def tell(self, *what: object) -> None:
        """Traces it."""
        if self._trace is not None:
            self._trace(f"{self.agenda.now:9.3f} {' '.join(map(str, what))}")

    def told_leader(self, tip: TopicIdPartition) -> int:
        """What a broker says; one may not have heard of the last move."""
        is_old = self.network.is_faulty and self.chance.random() < STALE
        node = self.cluster.leader(tip)[0]
        return self._former.get(tip, node) if is_old else node

    def tips_of(self, tps: Iterable[TopicPartition]) -> list[TopicIdPartition]:
        """The partitions by the topic's id."""
        return [self.tips[tp.partition] for tp in sorted(tps)]

    def in_flight(self) -> Iterator[tuple[TopicIdPartition, int, RecordState, str]]:
        """What the leaders have in flight."""
        for broker in self.cluster.brokers.values():
            for (_, tip), partition in broker.partitions.items():
                for offset, (state, _, member) in partition.states().items():
                    yield tip, offset, state, member

    def state(self, tip: TopicIdPartition, offset: int) -> str:
        """Of a record, for messages."""
        for each, at, state, member in self.in_flight():
            if (each, at) == (tip, offset):
                return f"{state.name} {member}"
        return "not in flight"
