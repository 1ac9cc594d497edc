"""A process's conversation with one broker: sends what its share session says, as `ShareLeader` does."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka.share.messages import (
    Answer,
    FetchedPartition,
    ShareAcknowledgeAnswer,
    ShareFetchAnswer,
    TopicIdPartition,
)
from consumer_sdk.adapters.kafka.share.session import FetchLimits, Request, ShareSession

if TYPE_CHECKING:
    from tests.sim.kafka_share.process import Process

__all__ = ["Line"]

BACKOFF = 0.3
LOST = ConnectionError("no answer")


class Line:
    """One broker, as a process reads from it.

    Attributes:
        connection: its name; another one after each that has ended.
        rests: until when partitions that were refused are left alone.
    """

    def __init__(self, process: Process, node: int) -> None:
        self.process, self.node = process, node
        plan = process.scene.plan
        self.session = ShareSession(
            process.scene.group,
            process.member.member_id,
            FetchLimits(acquire_mode=plan.mode, max_wait=1.0, busy_wait=0.1),
            renews=plan.renews,
        )
        self.rests: dict[TopicIdPartition, float] = {}
        self.is_closed = False
        self._connections = 0
        self._backs_off_until = 0.0
        self._request: Request | None = None
        self._number = 0
        self._wakes_at = inf
        self._idle: tuple[float, int] = (-1.0, 0)

    @property
    def connection(self) -> str:
        """Of now."""
        return f"{self.process.name}/{self.node}/{self._connections}"

    def work(self) -> None:
        """Sends what there is to send."""
        process, now = self.process, self.process.now
        if not process.is_alive or self.is_closed:
            return
        if self._request is None and now >= self._backs_off_until:
            wanted = {
                tip for tip in process.read_from(self.node) if self.rests.get(tip, 0.0) <= now
            }
            request = self.session.poll(now, wanted, process.room())
            if request is not None:
                self._send(request)
            else:
                self._check_idle()
        self._wake_later()

    def _check_idle(self) -> None:
        """Who wants to be woken has something to do then."""
        at, count = self._idle
        self._idle = (self.process.now, count + 1 if at == self.process.now else 1)
        assert self._idle[1] < 500, (
            f"{self.process.name} is woken again and again, and sends nothing"
        )

    def _wake_later(self) -> None:
        at = min([max(self.session.wake_at(), self._backs_off_until), *self._ends_of_rests()])
        if at < self._wakes_at:
            self._wakes_at = at
            self.process.scene.agenda.at(at, lambda: self._wake(at))

    def _ends_of_rests(self) -> list[float]:
        now = self.process.now
        backoff = [self._backs_off_until] if self._backs_off_until > now else []
        return backoff + [until for until in self.rests.values() if until > now]

    def _wake(self, at: float) -> None:
        if self._wakes_at == at:
            self._wakes_at = inf
            self.process.run(self.work)

    # -- requests ---------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        process, scene = self.process, self.process.scene
        process.tell("to", self.node, request)
        self._request, self._number = request, self._number + 1
        number = self._number
        scene.network.send(
            process.slot,
            self.node,
            self.connection,
            request,
            lambda answer: process.run(lambda: self._heard(number, request, answer)),
        )
        patience = scene.plan.request_timeout
        if scene.network.is_faulty and scene.chance.random() < scene.plan.breaks:
            patience *= scene.chance.random()
        process.after(patience, lambda: self._given_up(number, request))

    def _heard(self, number: int, request: Request, answer: Answer) -> None:
        process, chance = self.process, self.process.scene.chance
        assert isinstance(answer, ShareFetchAnswer | ShareAcknowledgeAnswer)
        is_awaited = number == self._number and self._request is request
        if not is_awaited:
            if chance.random() < process.scene.plan.repeated:
                self.session.answered(request, answer)
            return
        process.tell("from", self.node, answer)
        self._request = None
        received = self.session.answered(request, answer)
        if chance.random() < process.scene.plan.repeated:
            again = self.session.answered(request, answer)
            assert not again.partitions, "an answer is taken twice"
        for tip in received.lost:
            process.moved(tip)
        self._take(received.partitions)
        if received.error:
            self._back_off()
        self.work()

    def _take(self, partitions: Mapping[TopicIdPartition, FetchedPartition]) -> None:
        process = self.process
        for tip, part in partitions.items():
            if part.error:
                self.rests[tip] = process.now + BACKOFF
                process.moved(tip)
            elif part.acquired:
                process.acquired(self, tip, part.acquired)

    def _given_up(self, number: int, request: Request) -> None:
        """No answer: the connection ends with it."""
        if number != self._number or self._request is not request:
            return
        self.process.tell("from", self.node, "no answer")
        self._request = None
        self.process.doubt(self.node)
        self.hang_up()
        self.session.failed(request, LOST)
        self._back_off()
        self.work()

    def _back_off(self) -> None:
        self._backs_off_until = self.process.now + BACKOFF
        self.process.look_up()

    def hang_up(self, *, is_killed: bool = False) -> None:
        """The connection ends; the next one has another name."""
        self.process.scene.network.hang_up(
            self.process.slot, self.node, self.connection, is_killed=is_killed
        )
        self._connections += 1

    def close(self) -> None:
        """Ends the session, then the connection."""
        request = self.session.close(self.process.now)
        self.is_closed = True
        if request is not None:
            self._send(request)
        else:
            self.hang_up()
