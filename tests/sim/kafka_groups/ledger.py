"""The oracle: what may never happen to a group, judged from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    Answer,
    ConsumerHeartbeatAnswer,
    Request,
    SyncAnswer,
)
from consumer_sdk.testing.kafka import Code, OffsetCommit
from consumer_sdk.testing.kafka.refusals import RefusedError
from tests.sim.kafka_groups.members import decode_assignment

if TYPE_CHECKING:
    from tests.sim.kafka_groups.process import Process
    from tests.sim.kafka_groups.scene import GroupScene

__all__ = ["Ledger"]

FENCED = {
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_INSTANCE_ID,
    Code.FENCED_MEMBER_EPOCH,
    Code.STALE_MEMBER_EPOCH,
    Code.GROUP_ID_NOT_FOUND,
}
CLOCKED = {"session", "rebalance"}
"""Removals that a member knows of without a word: `held_until` is over by then."""


class Ledger:
    """Watches all processes of a scene.

    Attributes:
        moves: how many partitions were assigned to a process.
        commits: how many partitions were committed.
    """

    def __init__(self, scene: GroupScene) -> None:
        self._scene = scene
        self._told: dict[str, set[tuple[bytes, int | TopicPartition]]] = {}
        self.requests = 0
        self.commits = 0

    def sent(self, _process: Process, _request: Request) -> None:
        """A member has sent a request."""
        self.requests += 1

    def heard(self, process: Process, answer: Answer) -> None:
        """A member was told what it is to have."""
        match answer:
            case ConsumerHeartbeatAnswer(error=0, assignment=assignment) if assignment is not None:
                self._told[process.name] = {
                    (topic, number) for topic, numbers in assignment.items() for number in numbers
                }
            case SyncAnswer(error=0, assignment=data):
                self._told[process.name] = {(b"", tp) for tp in decode_assignment(data)}

    def revoked(self, process: Process, tps: frozenset[TopicPartition]) -> None:
        """Nothing is revoked that the member was told to have; but an eager one gives all back."""
        if process.is_eager:
            return
        topics = self._scene.subscribed_topics()
        told = self._told.get(process.name, set())
        for tp in tps:
            slot = (process.topic_ids[tp], tp.partition) if tp in process.topic_ids else (b"", tp)
            known = topics.get(tp.topic)
            if known is not None and slot[0] in (b"", known.topic_id):
                assert slot not in told, f"{process.name} revokes {tp}, which does not move"

    def check(self, process: Process) -> None:
        """Nobody else may hand out what this process holds, but one that the coordinator fences."""
        now = self._scene.agenda.now
        for tp in sorted(process.member.held):
            if not process.holds(tp, now):
                return
            for other in self._others(process, tp, process.topic_ids):
                is_excused = self._is_excused(process, tp) or self._is_excused(other, tp)
                assert is_excused, f"{process.name} and {other.name} both hold {tp}"

    def committed(
        self,
        process: Process,
        tps: Iterable[TopicPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """No commit is taken for what another one holds."""
        for tp in tps:
            self.commits += 1
            for other in self._others(process, tp, topic_ids):
                assert self._is_fenced(other, tp), (
                    f"{tp} is committed by {process.name}, and {other.name} holds it"
                )

    def _others(
        self, process: Process, tp: TopicPartition, topic_ids: Mapping[TopicPartition, bytes]
    ) -> Iterator[Process]:
        """Who holds it too; a topic of the same name may be another one."""
        now = self._scene.agenda.now
        for other in self._scene.processes:
            is_same = other.topic_ids.get(tp) == topic_ids.get(tp)
            if other is not process and is_same and other.holds(tp, now):
                yield other

    def _is_excused(self, process: Process, tp: TopicPartition) -> bool:
        """It could not commit, and could not know that from its clock."""
        if not self._is_fenced(process, tp):
            return False
        why = self._scene.coordinator.removed.get(process.member.member_id)
        # One gap is known: a JoinGroup that is lost while its connection looks alive.
        return why not in CLOCKED or process.waits_for_group

    def _is_fenced(self, process: Process, tp: TopicPartition) -> bool:
        member = process.member
        commit = OffsetCommit(
            self._scene.group, member.member_id, member.epoch, process.instance_id, {tp: 0}
        )
        try:
            (code,) = self._scene.coordinator.check_commit(commit)
        except RefusedError as error:
            code = error.code
        return code in FENCED

    def check_settled(self) -> None:
        """Each partition has exactly one process."""
        found: dict[TopicPartition, list[str]] = {tp: [] for tp in sorted(self._scene.existing())}
        for process in self._scene.processes:
            if process.is_working:
                assert not process.draining, f"{process.name} still drains {process.draining}"
                assert process.member.held_until > self._scene.agenda.now, f"{process.name} is late"
                for tp in process.owned:
                    found.setdefault(tp, []).append(process.name)
        wrong = {
            tp: names
            for tp, names in found.items()
            if len(names) != 1 or tp not in self._scene.existing()
        }
        assert not wrong, f"the group does not settle: {wrong}"
