"""One life of a group: a coordinator, its members, and what befalls them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from math import inf

from consumer_sdk.adapters.kafka.groups.member import TopicInfo, TopicPartition
from consumer_sdk.testing import Simulation
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    Code,
    CoordinatorOptions,
    GroupCoordinator,
    OffsetCommit,
)
from tests.sim.agenda import Agenda
from tests.sim.kafka_groups.ledger import Ledger
from tests.sim.kafka_groups.members import make_member
from tests.sim.kafka_groups.network import Network
from tests.sim.kafka_groups.plan import END, Life, make_plan
from tests.sim.kafka_groups.process import Process

__all__ = ["GroupScene"]

RESTART = 3.0
"""Seconds after which a process that was refused is started again."""


class GroupScene:
    """What one seed stands for; it needs no event loop, and `live` never waits."""

    group = "g"

    def __init__(self, simulation: Simulation, trace: Callable[[str], None] | None) -> None:
        self._trace = trace
        self.chance = chance = random.Random(simulation.random.getrandbits(64))
        self.plan = plan = make_plan(simulation.seed, chance)
        self.agenda = Agenda()
        self.topics = ClusterTopics(chance)
        self._nodes = [0]
        for number, partitions in enumerate(plan.topics):
            self.topics.create(f"t{number}", partitions)
        options = CoordinatorOptions(
            session_timeout=plan.session_timeout,
            heartbeat_interval=plan.heartbeat_interval,
            assignment_interval=plan.assignment_interval,
            max_size=plan.max_size,
            initial_rebalance_delay=min(3.0, plan.rebalance_timeout),
        )
        self.coordinator = GroupCoordinator(self.topics, chance, options)
        self.network = Network(self.agenda, chance, plan, self.coordinator, self._committed)
        self.ledger = Ledger(self)
        self.processes: list[Process] = []
        self.committing: dict[
            int, tuple[OffsetCommit, Process, dict[TopicPartition, bytes], float]
        ] = {}
        self._started = 0

    async def live(self) -> int:
        """Runs it; returns how many requests there were."""
        self.tell(f"{self.plan}")
        self._schedule()
        self.agenda.run_until(END)
        self._calm()
        self.agenda.run_until(self.agenda.now + self.plan.settling)
        self.ledger.check_settled()
        self._shrink()
        self._leave_all()
        return self.ledger.requests

    def _schedule(self) -> None:
        plan, at = self.plan, self.agenda.at
        for slot, lives in enumerate(plan.slots):
            for life in lives:
                at(life.start, lambda slot=slot, life=life: self.start(slot, life))  # type: ignore[misc]  # bound now
        for when, slot, duration in plan.stops:
            at(when, lambda slot=slot, for_=duration: self._stop(slot, for_))  # type: ignore[misc]  # bound now
        for when, slot, duration in plan.cuts:
            at(when, lambda slot=slot, for_=duration: self._cut(slot, for_))  # type: ignore[misc]  # bound now
        for when, load_time in plan.failovers:
            at(when, lambda load_time=load_time: self._fail_over(load_time))  # type: ignore[misc]  # bound now
        for when, change in plan.changes:
            at(when, lambda change=change: self._change(change))  # type: ignore[misc]  # bound now

    def start(self, slot: int, life: Life) -> None:
        """Starts a process; the one before it in the slot is dead by then, or leaves."""
        self._started += 1
        name = f"p{slot}.{self._started}"
        member = make_member(self.plan, self.group, slot, self.chance)
        process = Process(self, name, slot, member, life)
        self.processes.append(process)
        process.start()
        if life.end < inf:
            self.agenda.at(life.end, process.end)

    def ended(self, process: Process) -> None:
        """A process was refused, or has left."""
        if process.is_refused:
            life = Life(self.agenda.now + RESTART, process.life.end, process.life.ending)
            if life.start < life.end:
                self.agenda.at(life.start, lambda: self.start(process.slot, life))

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

    def _fail_over(self, load_time: float) -> None:
        node = len(self._nodes)
        self.tell(f"the coordinator is on node {node}, and loads for {load_time}")
        self._nodes.append(node)
        self.coordinator.fail_over(self.agenda.now, node, load_time)
        self.network.look()

    def _change(self, change: str) -> None:
        topics = self.topics.by_name()
        name = self.chance.choice(sorted(topics)) if topics else "t0"
        self.tell(f"topic {name}: {change}")
        match change:
            case "grow" if topics:
                self.topics.grow(name, topics[name].partitions + self.chance.randint(1, 3))
            case "delete" if len(topics) > 1:
                self.topics.delete(name)
            case "again":
                self.topics.create(name, self.chance.randint(1, 5))
            case _:
                self.topics.create(f"t{self.chance.randint(0, 9)}", self.chance.randint(1, 5))

    # -- the end ----------------------------------------------------------------------------------

    def _calm(self) -> None:
        self.tell("calm")
        self.network.is_faulty = False
        self.network.cut.clear()

    def _shrink(self) -> None:
        """One leaves, and the others take over what it had."""
        living = [process for process in self._living() if process.is_working]
        if len(living) > 1:
            self.chance.choice(living).leave()
            self.agenda.run_until(self.agenda.now + self.plan.settling)
            self.ledger.check_settled()

    def _leave_all(self) -> None:
        for process in self._living():
            process.leave()
        self.agenda.run_until(self.agenda.now + self.plan.settling)
        late = [process.name for process in self._living() if not process.member.has_left]
        assert not late, f"{late} do not leave"

    # -- what the others ask for --------------------------------------------------------------------

    def tell(self, what: str) -> None:
        """Traces it."""
        if self._trace is not None:
            self._trace(f"{self.agenda.now:9.3f} {what}")

    def _committed(self, commit: OffsetCommit, codes: dict[TopicPartition, Code]) -> None:
        _, process, topic_ids, sent_at = self.committing.pop(id(commit))
        # A member of the consumer protocol may give partitions back without a new epoch. Then Kafka takes a commit
        # that was sent before, and comes after its sender has given it up; it repeats records, and loses none.
        is_stray = self.agenda.now >= sent_at + self.plan.request_timeout
        if not (is_stray and self.plan.protocol == "consumer"):
            taken = [tp for tp, code in codes.items() if code is Code.NONE]
            self.ledger.committed(process, taken, topic_ids)

    def coordinator_node(self) -> int:
        """What a broker says; one may not have heard of the last failover."""
        is_old = self.network.is_faulty and self.chance.random() < 0.2
        return self._nodes[-2] if is_old and len(self._nodes) > 1 else self._nodes[-1]

    def subscribed_topics(self) -> Mapping[str, TopicInfo]:
        """Those of the cluster's topics that the members want."""
        names, pattern = self.plan.subscription
        return {
            name: info
            for name, info in self.topics.by_name().items()
            if name in names or (pattern and re.fullmatch(pattern, name))
        }

    def existing(self) -> set[TopicPartition]:
        """The partitions that are to be read."""
        return {
            TopicPartition(name, number)
            for name, info in self.subscribed_topics().items()
            for number in range(info.partitions)
        }
